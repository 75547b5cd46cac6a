//! The roles of a [`Peer`](crate::support::Peer).

use crate::client::costs::counter;
use crate::client::faults::holder;
use crate::client::turns::contender;
use crate::console::costs::{crowded, watched};
use crate::faults::processes::citizen;
use crate::idempotency::costs::namer;
use crate::interop::hoarder;
use crate::layer::costs::refuser;
use crate::layer::telemetry::logs::unlayered;
use crate::redis_sentinel::failover::bystander;
use crate::support::{Console, Role};

/// The test that a peer runs instead of all others; in a usual run it checks the table.
pub(crate) const ENTRY: &str = "roles::every_role_has_a_name_of_its_own";

/// Every role, by the name that tests ask for.
pub(crate) const ROLES: &[Role] = &[
    ("counter", |console| Box::pin(counter(console))),
    ("echo", |console| Box::pin(echo(console))),
    ("holder", |console| Box::pin(holder(console))),
    ("citizen", |console| Box::pin(citizen(console))),
    ("contender", |console| Box::pin(contender(console))),
    ("namer", |console| Box::pin(namer(console))),
    ("refuser", |console| Box::pin(refuser(console))),
    ("unlayered", |console| Box::pin(unlayered(console))),
    ("watched", |console| Box::pin(watched(console))),
    ("crowded", |console| Box::pin(crowded(console))),
    ("bystander", |console| Box::pin(bystander(console))),
    ("hoarder", |console| Box::pin(hoarder(console))),
];

#[test]
fn every_role_has_a_name_of_its_own() {
    crate::support::play(ROLES);
}

/// The role: repeats each line.
async fn echo(mut console: Console) {
    loop {
        let line = console.hear().await;
        console.say(line);
    }
}

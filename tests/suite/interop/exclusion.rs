//! A holder of one language excludes the other language.

use std::time::Duration;

use futures_util::future::join_all;

use super::redisson::now;
use super::{Kind, LEASE, Meeting, Party, WATCHDOG};

/// The kind of a hold, and the kind that is then refused to others.
const CONTESTS: [(Kind, Kind); 9] = [
    (Kind::Reentrant, Kind::Reentrant),
    (Kind::Fair, Kind::Fair),
    (Kind::Fenced, Kind::Fenced),
    (Kind::Write, Kind::Write),
    (Kind::Write, Kind::Read),
    (Kind::Read, Kind::Write),
    // One family, one hash: they exclude each other under one name.
    (Kind::Reentrant, Kind::Fair),
    (Kind::Fair, Kind::Reentrant),
    (Kind::Fenced, Kind::Reentrant),
];

#[tokio::test]
async fn a_holder_excludes_the_other_language() {
    let meeting = Meeting::open().await;
    let mut contests = Vec::new();
    let mut names = Vec::new();
    for (holder, rival) in meeting.pairs() {
        for (held, wanted) in CONTESTS {
            if !holder.knows(held) || !rival.knows(wanted) {
                continue;
            }
            for name in meeting.names() {
                names.push(name.clone());
                contests.push(exclude(holder.clone(), held, rival.clone(), wanted, name));
            }
        }
    }
    join_all(contests).await;
    meeting.nothing_is_left(&names).await;
}

async fn exclude(holder: Party, held: Kind, rival: Party, wanted: Kind, name: String) {
    // Longer than any answer takes on a busy machine: without an answer, the client does not know
    // that the lock is taken.
    const PATIENCE: Duration = Duration::from_secs(2);
    let contest = format!(
        "{} holds {held} of {name}, {} wants {wanted}",
        holder.language(),
        rival.language()
    );
    let hold = holder.lock(held, &name, LEASE).await;
    let refused = rival.try_lock(wanted, &name, Duration::ZERO).await;
    assert!(refused.is_none(), "{contest}: granted at once");
    let asked = now();
    let refused = rival.try_lock(wanted, &name, PATIENCE).await;
    assert!(refused.is_none(), "{contest}: granted after a while");
    assert!(now() - asked >= PATIENCE, "{contest}: refused too soon");
    hold.release().await;

    // Not at once: a waiter of ours that gave up leaves the queue in the background.
    let granted = rival.try_lock(wanted, &name, WATCHDOG).await;
    let granted = granted.unwrap_or_else(|| panic!("{contest}: refused although it is free"));
    granted.release().await;
}

#[tokio::test]
async fn readers_of_both_languages_read_together() {
    let meeting = Meeting::open().await;
    let mut names = Vec::new();
    for (first, second) in meeting.pairs() {
        for name in meeting.names() {
            let one = first.lock(Kind::Read, &name, LEASE).await;
            let two = second.try_lock(Kind::Read, &name, Duration::ZERO).await;
            two.expect("readers share").release().await;
            one.release().await;
            names.push(name);
        }
    }
    meeting.nothing_is_left(&names).await;
}

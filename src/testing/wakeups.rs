//! Delivers wake-ups from the store to a waiter.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::Fault;
use super::link::Link;
use super::server::FaultyServer;
use crate::store::{LockStore, Wakeups};

/// Forwards wake-ups while the connection is up, and wakes when it is up again. It is over when `wakeups` are.
pub(super) fn relay<S: LockStore>(
    server: &Arc<FaultyServer<S>>,
    link: &Arc<Link>,
    wakeups: Wakeups,
) -> Wakeups {
    let (waking, signal) = watch::channel(());
    let relaying = tokio::spawn(run(server.clone(), link.clone(), wakeups, waking));
    Wakeups::new(signal, AbortOnDropHandle::new(relaying))
}

async fn run<S: LockStore>(
    server: Arc<FaultyServer<S>>,
    link: Arc<Link>,
    mut wakeups: Wakeups,
    waking: watch::Sender<()>,
) {
    let mut cuts = link.cuts();
    loop {
        tokio::select! {
            // A fixed order, so that one seed gives one history.
            biased;
            heard = wakeups.wait() => {
                if !heard {
                    return;
                }
                let passes = link.is_up() && !is_lost(&server);
                if passes {
                    waking.send_replace(());
                }
            }
            () = link.reconnected(&mut cuts) => {
                waking.send_replace(());
            }
        }
    }
}

fn is_lost<S: LockStore>(server: &FaultyServer<S>) -> bool {
    let state = &mut *server.state.lock();
    let lost = state.faults.strikes(Fault::WakeupLost, &mut state.random);
    if lost {
        state.tally.hit(Fault::WakeupLost);
    }
    lost
}

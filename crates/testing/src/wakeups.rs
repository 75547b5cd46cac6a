//! Delivers wake-ups from the store to a waiter.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::Fault;
use super::server::FaultyServer;
use tower_distributed_lock::store::{LockStore, Wakeups};

/// Forwards wake-ups while the connection is up, and wakes when it is up again. It is over when `wakeups` are.
pub(super) fn relay<S: LockStore>(
    server: &Arc<FaultyServer<S>>,
    link: usize,
    wakeups: Wakeups,
) -> Wakeups {
    let (waking, signal) = watch::channel(());
    // Not in the task, which may begin after the connection has broken.
    let cuts = server.state().cuts(link);
    let relaying = tokio::spawn(run(server.clone(), link, cuts, wakeups, waking));
    Wakeups::new(signal, AbortOnDropHandle::new(relaying))
}

async fn run<S: LockStore>(
    server: Arc<FaultyServer<S>>,
    link: usize,
    mut cuts: u64,
    mut wakeups: Wakeups,
    waking: watch::Sender<()>,
) {
    loop {
        tokio::select! {
            // A fixed order, so that one seed gives one history.
            biased;
            heard = wakeups.wait() => {
                if !heard {
                    return;
                }
                if passes(&server, link) {
                    waking.send_replace(());
                }
            }
            now = server.reconnected(link, cuts) => {
                cuts = now;
                waking.send_replace(());
            }
        }
    }
}

/// Whether a wake-up arrives.
fn passes<S: LockStore>(server: &FaultyServer<S>, link: usize) -> bool {
    let state = &mut *server.state();
    if !state.is_up(link) {
        return false;
    }
    let lost = state.faults.strikes(Fault::WakeupLost, &mut state.random);
    if lost {
        state.tally.hit(Fault::WakeupLost);
    }
    !lost
}

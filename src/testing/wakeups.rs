//! Wake-ups on their way from the store to a waiter.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::Fault;
use super::link::{Line, Link};
use super::server::Server;
use crate::store::{LockStore, Wakeups};

/// Passes wake-ups on while the connection stands, and wakes when it stands again.
pub(super) fn relay<S: LockStore>(
    server: &Arc<Server<S>>,
    link: &Arc<Link>,
    wakeups: Wakeups,
) -> Wakeups {
    let (waking, signal) = watch::channel(());
    let relaying = tokio::spawn(run(server.clone(), link.watch(), wakeups, waking));
    Wakeups::new(signal, Relay(relaying.abort_handle()))
}

async fn run<S: LockStore>(
    server: Arc<Server<S>>,
    mut line: watch::Receiver<Line>,
    mut wakeups: Wakeups,
    waking: watch::Sender<()>,
) {
    loop {
        tokio::select! {
            // One order, so that one seed gives one history.
            biased;
            () = wakeups.wait() => {
                let passes = line.borrow().is_up() && !is_lost(&server);
                if passes {
                    waking.send_replace(());
                }
            }
            changed = line.changed() => match changed {
                Ok(()) if line.borrow_and_update().is_up() => {
                    waking.send_replace(());
                }
                Ok(()) => {}
                Err(_) => return,
            },
        }
    }
}

fn is_lost<S: LockStore>(server: &Server<S>) -> bool {
    let state = &mut *server.state();
    let lost = state.faults.strikes(Fault::WakeupLost, &mut state.random);
    if lost {
        state.tally.hit(Fault::WakeupLost);
    }
    lost
}

/// Ends the relay when the waiter no longer listens.
struct Relay(AbortHandle);

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

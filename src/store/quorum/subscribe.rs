//! Wake-ups from several stores.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::QuorumStore;
use super::hold::{AttemptedHold, RefusedVote};
use super::majority::{MajorityCall, Vote, most_answered};
use super::members::Members;
use crate::backoff::jittered;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, LockKey, LockMode};
use crate::shared_table::SharedRow;
use crate::store::{Attempt, LockStore, Wakeups};
use crate::sync::Mutex;

/// The shortest time between two attempts to subscribe in a store that failed, or whose subscription is over.
const RETRY: Duration = Duration::from_secs(1);

/// How long a wake-up waits for those of the other stores. The time doubles, up to the limit, each time that they do not
/// arrive: a minority of the stores cannot grant.
const GATHER: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

impl<S: LockStore> QuorumStore<S> {
    /// Subscribes in every store, and returns when a majority has answered. Every holder has its hold in one store of that
    /// majority.
    pub(super) async fn subscribe_majority(&self, attempt: &Attempt) -> Vote<Wakeups> {
        let call = Arc::new(MajorityCall::new(self.count()));
        let (signal, wakeups) = watch::channel(());
        let (wake, woken) = mpsc::unbounded_channel();
        let listening = self.all().iter().map(|store| {
            let quorum = self.clone();
            quorum.listen_to(store, attempt.clone(), call.clone(), wake.clone())
        });
        let listening = join_all(listening.collect::<Vec<_>>());
        let majority = self.majority_count();
        let gathering = gather(majority, self.last_votes(&attempt.hold), woken, signal);
        let task = tokio::spawn(async move { tokio::join!(listening, gathering) });
        let task = AbortOnDropHandle::new(task);
        let decide = most_answered(majority);
        let decision = call.decision(self.deadline(), majority, decide, |_| false);
        decision.await.map(|()| Wakeups::new(wakeups, task))
    }

    /// Subscribes in one store, votes, and reports its wake-ups for as long as it is polled. It subscribes again when that fails,
    /// and when the subscription is over.
    async fn listen_to(
        self,
        store: usize,
        attempt: Attempt,
        call: Arc<MajorityCall<()>>,
        wake: mpsc::UnboundedSender<usize>,
    ) {
        loop {
            let again = Instant::now() + jittered(RETRY);
            let (quorum, attempt) = (self.clone(), attempt.clone());
            // A task of its own, which completes even when no listener is left.
            let subscribing =
                tokio::spawn(async move { quorum.shared.stores[store].subscribe(&attempt).await });
            let died = |died| Err(StoreError::new(StoreErrorKind::Unanswered, died));
            match subscribing.await.unwrap_or_else(died) {
                Ok(mut wakeups) => {
                    // Changes before a late subscription were missed, so it counts as a wake-up.
                    let late = call.cast(store, Ok(())).is_some();
                    let mut woken = late || wakeups.wait().await;
                    while woken {
                        if wake.send(store).is_err() {
                            return;
                        }
                        woken = wakeups.wait().await;
                    }
                }
                Err(error) => drop(call.cast(store, Err(error))),
            }
            sleep_until(again).await;
        }
    }

    /// The votes on the last attempt for this key in this mode; at first those on the attempt that subscribes.
    fn last_votes(&self, hold: &Hold) -> SharedRow<(LockKey, LockMode), Mutex<RefusedVote>> {
        let known = self.shared.holds.find(hold);
        let known = known.map(|hold| hold.lock().waiting).unwrap_or_default();
        let name = (hold.key.clone(), hold.mode);
        let of_name = || Mutex::new(known);
        self.shared.last_votes.find_or(&name, of_name)
    }

    /// Records the votes on an attempt, before its grants are given back.
    pub(super) fn note_votes(&self, AttemptedHold { attempt, hold }: &AttemptedHold) {
        let name = (attempt.hold.key.clone(), attempt.hold.mode);
        if let Some(last) = self.shared.last_votes.find(&name) {
            let waiting = hold.lock().waiting;
            *last.lock() = waiting;
        }
    }
}

/// Combines the wake-ups of all stores into one.
async fn gather(
    majority: usize,
    last_votes: SharedRow<(LockKey, LockMode), Mutex<RefusedVote>>,
    mut by: mpsc::UnboundedReceiver<usize>,
    signal: watch::Sender<()>,
) {
    let mut woken = Woken::new(majority);
    loop {
        // Checked here, because the timer is late by up to a millisecond.
        if woken.is_due() {
            woken.ring(&signal);
        }
        tokio::select! {
            biased; // without chance, a simulation replays
            store = by.recv() => match store {
                Some(store) => woken.by(store, *last_votes.lock()),
                None => return,
            },
            Some(()) = OptionFuture::from(woken.due.map(sleep_until)) => {}
        }
    }
}

/// Wake-ups that were not forwarded yet.
///
/// A refused attempt can be granted when enough of the stores that refused it become free. A store that granted brings
/// nothing new: most of its wake-ups come from giving that grant back, and a client that asked again after each of these
/// would do so for ever.
struct Woken {
    majority: usize,
    by: Members,
    /// Whether these stores may form a majority.
    enough: bool,
    gather: Duration,
    due: Option<Instant>,
}

impl Woken {
    fn new(majority: usize) -> Self {
        Self {
            majority,
            by: Members::default(),
            enough: false,
            gather: GATHER.0,
            due: None,
        }
    }

    fn by(&mut self, store: usize, waiting: RefusedVote) {
        if waiting.granting.contains(store) {
            return;
        }
        self.by.insert(store);
        self.enough = self.by.or(waiting.granting).len() >= self.majority;
        let gather = if self.enough {
            Duration::ZERO
        } else {
            self.gather
        };
        let at = Instant::now() + gather;
        // After a split vote, clients must not ask again at the same time.
        let at = waiting.quiet_until.map_or(at, |quiet| quiet.max(at));
        let earlier = self.due.filter(|_| !self.enough);
        self.due = Some(earlier.map_or(at, |due| due.min(at)));
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    fn ring(&mut self, signal: &watch::Sender<()>) {
        let gather = if self.enough {
            GATHER.0
        } else {
            GATHER.1.min(self.gather * 2)
        };
        *self = Self {
            gather,
            ..Self::new(self.majority)
        };
        signal.send_replace(());
    }
}

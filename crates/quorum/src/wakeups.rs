//! Wake-ups from several stores.

use std::mem::replace;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tower_distributed_lock::store::{Attempt, LockStore, Outcome, Wakeups};

use crate::ballot::{Ballot, Vote, majority, most_answered};
use crate::table::lock;
use crate::{QuorumStore, died};

/// The shortest time between two attempts to subscribe in a store that failed, or whose subscription is over.
const RETRY: Duration = Duration::from_secs(1);

/// The bound of the first pause after a split vote, and of the longest. A pause is drawn at random below a bound that doubles with
/// each split.
const PAUSE: (Duration, Duration) = (Duration::from_millis(8), Duration::from_millis(500));

/// What those who wait for a key in a mode know of the latest attempt. It may be that of another waiter: a client uses the wake-ups
/// of one attempt for the next.
#[derive(Debug)]
pub(crate) struct Room(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    /// The stores that would grant: they have granted, or have woken since the attempt began. When one that has granted wakes, this
    /// is no news: most come from giving that grant back, and a client that asked again after each would do so forever.
    free: Vec<bool>,
    /// The earliest time to ask again. After a split vote, clients must not ask again at the same time.
    quiet_until: Instant,
    /// How many times in a row the vote was split.
    splits: u32,
}

impl Room {
    pub(crate) fn new(stores: usize) -> Self {
        Self(Mutex::new(Latest {
            free: vec![false; stores],
            quiet_until: Instant::now(),
            splits: 0,
        }))
    }

    /// An attempt begins. It answers all that woke before.
    pub(crate) fn begin(&self) {
        lock(&self.0).free.fill(false);
    }

    /// The attempt, which took this long, is answered, and `grants` says which stores granted. Returns the answer, which says when
    /// to ask again without a wake-up: after a pause if the vote was split, or if a majority has come free meanwhile.
    pub(crate) fn answered(&self, outcome: Outcome, grants: &[bool], taken: Duration) -> Outcome {
        let latest = &mut *lock(&self.0);
        latest.quiet_until = Instant::now();
        let Outcome::Refused { retry_after } = outcome else {
            latest.splits = 0;
            return outcome;
        };
        for (free, grants) in latest.free.iter_mut().zip(grants) {
            *free |= grants;
        }
        if !grants.contains(&true) && !latest.may_grant() {
            latest.splits = 0;
            return outcome;
        }
        let bound = PAUSE
            .0
            .max(2 * taken)
            .saturating_mul(1 << latest.splits.min(16));
        let pause = bound.min(PAUSE.1).mul_f64(fastrand::f64()).min(retry_after);
        latest.splits += 1;
        latest.quiet_until += pause;
        Outcome::Refused { retry_after: pause }
    }

    /// A store has woken. Returns when to ask again, if a majority may grant now. If it never may, the client asks by itself, within
    /// a second.
    fn wake(&self, store: usize) -> Option<Instant> {
        let mut latest = lock(&self.0);
        let is_news = !replace(&mut latest.free[store], true);
        (is_news && latest.may_grant()).then_some(latest.quiet_until)
    }
}

impl Latest {
    fn may_grant(&self) -> bool {
        let free = self.free.iter().filter(|free| **free).count();
        free >= majority(self.free.len())
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Subscribes in every store, and returns when a majority has answered. Every holder has its hold in a store of that majority.
    pub(crate) async fn subscribe_majority(&self, attempt: Attempt) -> Vote<Wakeups> {
        let (signal, wakeups) = watch::channel(());
        let room = self.room(&attempt.hold);
        let listening = (0..self.stores()).map(|at| {
            let (vote, voted) = oneshot::channel();
            let (attempt, room, signal) = (attempt.clone(), room.clone(), signal.clone());
            tokio::spawn(self.clone().listen(at, attempt, room, signal, vote));
            async { voted.await.unwrap_or_else(|error| Err(died(error))) }
        });
        let mut ballot = Ballot::new(listening);
        let decision = ballot.decision(self.deadline(), most_answered, |_| false);
        decision.await.map(|()| Wakeups::new(wakeups, ()))
    }

    /// Subscribes in one store, votes, and signals when it is time to ask again, until nobody hears it. It subscribes again when
    /// that fails, or when the subscription is over.
    async fn listen(
        self,
        at: usize,
        attempt: Attempt,
        room: Arc<Room>,
        signal: watch::Sender<()>,
        vote: oneshot::Sender<Vote<()>>,
    ) {
        let mut vote = Some(vote);
        loop {
            let again = Instant::now() + RETRY.mul_f64(0.75 + fastrand::f64() / 4.0);
            let subscribed = self.shared.stores[at].subscribe(&attempt).await;
            let (wakeups, answer) = match subscribed {
                Ok(wakeups) => (Some(wakeups), Ok(())),
                Err(error) => (None, Err(error)),
            };
            let mut in_time = vote.take().is_some_and(|vote| vote.send(answer).is_ok());
            let listening = async {
                if let Some(mut wakeups) = wakeups {
                    // What happened before a late subscription was missed, so it counts as a wake-up.
                    while !replace(&mut in_time, true) || wakeups.wait().await {
                        if let Some(due) = room.wake(at) {
                            sleep_until(due).await;
                            signal.send_replace(());
                        }
                    }
                }
                sleep_until(again).await;
            };
            tokio::select! {
                biased; // without chance, a simulation replays
                () = signal.closed() => return,
                () = listening => {}
            }
        }
    }
}

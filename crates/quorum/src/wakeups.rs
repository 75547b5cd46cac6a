//! Wake-ups from several stores.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tower_distributed_lock::store::{Attempt, LockStore, Wakeups};

use crate::QuorumStore;
use crate::ballot::{Vote, most_answered};
use crate::table::lock;

/// The shortest time between two attempts to subscribe in a store that failed, or whose subscription is over.
const RETRY: Duration = Duration::from_secs(1);

/// The bound of the first pause after a split vote, and of the longest. A pause is drawn at random below a bound that doubles with
/// each split.
const PAUSE: (Duration, Duration) = (Duration::from_millis(8), Duration::from_millis(500));

/// When those who wait for a key ask again. After a split vote, clients must not ask again at the same time, although each wakes the
/// others, and itself, by giving back what it was granted.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<(Instant, u32)>);

impl Pace {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }

    /// A grant is given back, after a vote that took this long. Returns for how long no waiter is woken.
    pub(crate) fn pause(&self, taken: Duration) -> Duration {
        let (quiet_until, splits) = &mut *lock(&self.0);
        let now = Instant::now();
        if *quiet_until <= now {
            let bound = PAUSE
                .0
                .max(2 * taken)
                .saturating_mul(1 << (*splits).min(16));
            *quiet_until = now + bound.min(PAUSE.1).mul_f64(fastrand::f64());
            *splits += 1;
        }
        *quiet_until - now
    }

    /// A vote was won: the next pause is short again.
    pub(crate) fn granted(&self) {
        lock(&self.0).1 = 0;
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Subscribes in every store, and returns when a majority has answered. Every holder has its hold in a store of that majority.
    pub(crate) async fn subscribe_majority(&self, attempt: Attempt) -> Vote<Wakeups> {
        let mut ballot = self.ballot(|quorum, at| {
            let attempt = attempt.clone();
            async move { (quorum.shared.stores[at].subscribe(&attempt).await, at) }
        });
        let subscribed = ballot
            .decision(self.deadline(None), false, most_answered)
            .await;
        let (signal, wakeups) = watch::channel(());
        let (quorum, pace) = (self.clone(), self.pace(&attempt.hold.key));
        tokio::spawn(ballot.finish(move |subscribed, at| {
            let (quorum, attempt, pace) = (quorum.clone(), attempt.clone(), pace.clone());
            quorum.listen(at, attempt, pace, signal.clone(), subscribed)
        }));
        subscribed.map(|()| Wakeups::new(wakeups, ()))
    }

    /// Signals when it is time to ask again, until no listener is left. It subscribes again where that has failed, or where the
    /// subscription is over.
    async fn listen(
        self,
        at: usize,
        attempt: Attempt,
        pace: Arc<Pace>,
        signal: watch::Sender<()>,
        mut subscribed: Vote<Wakeups>,
    ) {
        loop {
            let again = Instant::now() + RETRY;
            let hear = async {
                if let Ok(wakeups) = &mut subscribed {
                    while wakeups.wait().await {
                        let (quiet_until, _) = *lock(&pace.0);
                        sleep_until(quiet_until).await;
                        signal.send_replace(());
                    }
                }
                sleep_until(again).await;
            };
            tokio::select! {
                biased; // without chance, a simulation replays
                () = signal.closed() => return,
                () = hear => {}
            }
            subscribed = self.shared.stores[at].subscribe(&attempt).await;
            if subscribed.is_ok() {
                signal.send_replace(()); // What happened meanwhile was missed.
            }
        }
    }
}

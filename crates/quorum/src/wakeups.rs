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

    /// A grant is given back, after a vote that took this long. Returns for how long nobody is woken.
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
        let (signal, wakeups) = watch::channel(());
        let pace = self.pace(&attempt.hold.key);
        let mut ballot = self.ballot(|quorum, at| {
            let (attempt, pace, signal) = (attempt.clone(), pace.clone(), signal.clone());
            async move {
                let heard = quorum.shared.stores[at].subscribe(&attempt).await;
                let vote = heard.as_ref().map(drop).map_err(Clone::clone);
                tokio::spawn(quorum.listen(at, attempt, pace, signal, heard));
                vote
            }
        });
        let until = self.deadline(None);
        let subscribed = ballot.decision(until, false, most_answered).await;
        tokio::spawn(ballot.rest());
        subscribed.map(|()| Wakeups::new(wakeups, ()))
    }

    /// Signals when it is time to ask again, until nobody hears it. It subscribes again where that has failed, or where the
    /// subscription is over.
    async fn listen(
        self,
        at: usize,
        attempt: Attempt,
        pace: Arc<Pace>,
        signal: watch::Sender<()>,
        mut heard: Vote<Wakeups>,
    ) {
        loop {
            let again = Instant::now() + RETRY;
            let hearing = async {
                if let Ok(wakeups) = &mut heard {
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
                () = hearing => {}
            }
            heard = self.shared.stores[at].subscribe(&attempt).await;
            signal.send_replace(()); // What happened meanwhile was missed.
        }
    }
}

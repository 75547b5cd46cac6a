//! Wake-ups from several stores.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower_distributed_lock::store::{Attempt, Outcome, Wakeups};
use tower_distributed_lock::{Hold, LockStore, StoreError, StoreErrorKind};

use crate::QuorumStore;
use crate::ballot::{Ballot, Paper, Vote, majority, most_answered};
use crate::watched::Watched;

/// The shortest time between two attempts to subscribe in a store that failed, or whose subscription is over.
const RETRY: Duration = Duration::from_secs(1);

/// What those who wait for a key in a mode know of the latest attempt. It may be that of another waiter: a client uses the wake-ups
/// of one attempt for the next.
#[derive(Debug)]
pub(crate) struct Room(Watched<Latest>);

#[derive(Debug)]
struct Latest {
    /// When it began. What had woken before was answered by it.
    begun: Instant,
    /// The stores that would have granted. Their wake-ups bring nothing new: most come from giving that grant back, and a client
    /// that asked again after each of these would do so forever.
    granting: Vec<bool>,
    /// The earliest time to ask again. After a split vote, clients must not ask again at the same time.
    quiet_until: Option<Instant>,
    /// How many times in a row the vote was split.
    splits: u32,
}

impl Room {
    fn new(stores: usize) -> Self {
        Self(Watched::new(Latest {
            begun: Instant::now(),
            granting: vec![false; stores],
            quiet_until: None,
            splits: 0,
        }))
    }

    pub(crate) fn begin(&self, now: Instant) {
        self.0.change(|latest| latest.begun = now);
    }

    /// The attempt was answered.
    pub(crate) fn end(&self, answer: &Vote<Outcome>, granting: impl Iterator<Item = bool>) {
        let is_refused = matches!(answer, Ok(Outcome::Refused { .. }));
        self.0.change(|latest| {
            latest.granting = granting.map(|grants| grants && is_refused).collect();
            let is_split = latest.granting.contains(&true);
            latest.splits = if is_split { latest.splits + 1 } else { 0 };
            latest.quiet_until = match answer {
                Ok(Outcome::Refused { retry_after }) if is_split => {
                    Some(Instant::now() + *retry_after)
                }
                _ => None,
            };
        });
    }

    /// A store has granted, late or in a minority, and the grant is given back.
    pub(crate) fn grants(&self, store: usize) {
        self.0.change(|latest| latest.granting[store] = true);
    }

    pub(crate) fn splits(&self) -> u32 {
        self.0.lock().splits
    }
}

impl Latest {
    /// When to ask again, if the stores woke at these times: as soon as those that woke and those that grant are a majority. If they
    /// never are, the client asks by itself, within a second.
    fn due(&self, woke: &[Option<Instant>]) -> Option<Instant> {
        let has_woken = |&at: &usize| woke[at].is_some_and(|woke| woke >= self.begun);
        let refusing = (0..woke.len()).filter(|&at| !self.granting[at]);
        let (woken, held): (Vec<_>, Vec<_>) = refusing.partition(has_woken);
        let may_grant = woke.len() - held.len() >= majority(woke.len());
        (may_grant && !woken.is_empty()).then(|| self.quiet_until.unwrap_or(self.begun))
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// The room of those who wait for the key of a hold, if there are any.
    pub(crate) fn room(&self, hold: &Hold) -> Option<Arc<Room>> {
        self.shared.rooms.find(&(hold.key.clone(), hold.mode))
    }

    /// Subscribes in every store, and returns when a majority has answered. Every holder has its hold in a store of that majority.
    pub(crate) async fn subscribe_majority(&self, attempt: Attempt) -> Vote<Wakeups> {
        let name = (attempt.hold.key.clone(), attempt.hold.mode);
        let new = || Arc::new(Room::new(self.stores()));
        let room = self
            .shared
            .rooms
            .put(&name, |room| room.unwrap_or_else(new));
        let ballot = Ballot::new(self.stores());
        let (signal, wakeups) = watch::channel(());
        let (wake, woken) = mpsc::unbounded_channel();
        let mut listening = JoinSet::new();
        for at in 0..self.stores() {
            let listener = self
                .clone()
                .listen(at, attempt.clone(), ballot.paper(), wake.clone());
            listening.spawn(listener);
        }
        listening.spawn(ring(room, self.stores(), woken, signal));
        let decision = ballot.decision(self.deadline(), most_answered, |_| false);
        decision.await.map(|()| Wakeups::new(wakeups, listening))
    }

    /// Subscribes in one store, votes, and reports when it wakes. It subscribes again when that fails, or when the subscription is
    /// over.
    async fn listen(
        self,
        at: usize,
        attempt: Attempt,
        paper: Arc<Paper<()>>,
        wake: mpsc::UnboundedSender<(usize, Instant)>,
    ) {
        loop {
            let again = Instant::now() + RETRY.mul_f64(0.75 + fastrand::f64() / 4.0);
            let (quorum, attempt) = (self.clone(), attempt.clone());
            // A task of its own, which goes on to its end even if the listener has gone.
            let subscribing =
                tokio::spawn(async move { quorum.shared.stores[at].subscribe(&attempt).await });
            let died = |died| Err(StoreError::new(StoreErrorKind::Unanswered, died));
            match subscribing.await.unwrap_or_else(died) {
                Ok(mut wakeups) => {
                    // What happened before a late subscription was missed, so it counts as a wake-up.
                    let mut woken = !paper.is_open() || {
                        paper.cast(at, Ok(()));
                        wakeups.wait().await
                    };
                    while woken && wake.send((at, Instant::now())).is_ok() {
                        woken = wakeups.wait().await;
                    }
                }
                Err(error) => paper.cast(at, Err(error)),
            }
            sleep_until(again).await;
        }
    }
}

/// Rings when it is time to ask again.
async fn ring(
    room: Arc<Room>,
    stores: usize,
    mut woken: mpsc::UnboundedReceiver<(usize, Instant)>,
    signal: watch::Sender<()>,
) {
    let mut woke = vec![None; stores];
    loop {
        let mut changed = pin!(room.0.changed());
        changed.as_mut().enable();
        let due = room.0.lock().due(&woke);
        if due.is_some_and(|due| due <= Instant::now()) {
            woke.fill(None);
            signal.send_replace(());
            continue;
        }
        tokio::select! {
            biased; // without chance, a simulation replays
            wake = woken.recv() => match wake {
                Some((at, when)) => woke[at] = Some(when),
                None => return,
            },
            () = changed => {}
            Some(()) = OptionFuture::from(due.map(sleep_until)) => {}
        }
    }
}

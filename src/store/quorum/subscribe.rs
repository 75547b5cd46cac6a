//! Wake-ups from several stores.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::QuorumStore;
use super::echoes::EchoListener;
use super::hold::RefusedVote;
use super::majority::Vote;
use super::members::Members;
use super::vote_count::{answered, no_majority};
use crate::backoff::jittered;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::Hold;
use crate::owned_task::OwnedTask;
use crate::store::{Attempt, LockStore, Wakeups};

/// The pause before the next attempt to subscribe in a store that failed.
const RETRY: Duration = Duration::from_secs(1);

/// How long a wake-up waits for those of the other stores. The time doubles, up to the limit, each time that they do not
/// arrive: a minority of the stores cannot grant.
const GATHER: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// An event from the subscription to one store.
enum StoreEvent {
    Listening(usize),
    Deaf(usize, StoreError),
    Woken(usize),
}

impl<S: LockStore> QuorumStore<S> {
    /// Subscribes in every store, and returns when a majority has answered. Every holder has its hold in one store of that
    /// majority.
    pub(super) async fn subscribe_majority(
        &self,
        attempt: &Attempt,
    ) -> Result<Wakeups, StoreError> {
        let (signal, woken) = watch::channel(());
        let (ready, begun) = oneshot::channel();
        let (tell, news) = mpsc::unbounded_channel();
        let listeners = self.all().iter().map(|store| {
            let (quorum, attempt) = (self.clone(), attempt.clone());
            quorum.listen_to(store, attempt, tell.clone())
        });
        let listeners = join_all(listeners.collect::<Vec<_>>());
        let gathering = self
            .clone()
            .gather(self.listener(&attempt.hold), news, signal, ready);
        let task = OwnedTask::new(&tokio::spawn(async move {
            tokio::join!(listeners, gathering);
        }));
        match timeout(self.store_timeout, begun).await {
            Ok(Ok(Ok(()))) => Ok(Wakeups::new(woken, task)),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) | Err(_) => Err(StoreError::new(
                StoreErrorKind::Unanswered,
                "no majority of the stores began to listen in time",
            )),
        }
    }

    /// Subscribes in one store, and reports its events for as long as it is polled.
    async fn listen_to(
        self,
        store: usize,
        attempt: Attempt,
        tell: mpsc::UnboundedSender<StoreEvent>,
    ) {
        loop {
            let (quorum, attempt) = (self.clone(), attempt.clone());
            // A task of its own, which completes even when no listener is left.
            let subscribing =
                tokio::spawn(async move { quorum.shared.stores[store].subscribe(&attempt).await });
            let heard = match subscribing.await {
                Ok(heard) => heard,
                Err(died) => Err(StoreError::new(StoreErrorKind::Unanswered, died)),
            };
            let news = match heard {
                Ok(mut wakeups) => {
                    let mut news = StoreEvent::Listening(store);
                    while tell.send(news).is_ok() {
                        wakeups.wait().await;
                        news = StoreEvent::Woken(store);
                    }
                    return;
                }
                Err(error) => StoreEvent::Deaf(store, error),
            };
            if tell.send(news).is_err() {
                return;
            }
            sleep(jittered(RETRY)).await;
        }
    }

    /// Combines the wake-ups of all stores into one.
    async fn gather(
        self,
        listener: EchoListener,
        mut news: mpsc::UnboundedReceiver<StoreEvent>,
        signal: watch::Sender<()>,
        ready: oneshot::Sender<Result<(), StoreError>>,
    ) {
        let mut start = Start::new(&self, ready);
        let mut woken = Woken::new(self.majority_count());
        loop {
            // Checked here, because the timer is late by up to a millisecond.
            if woken.is_due() {
                woken.ring(&signal);
            }
            let news = tokio::select! {
                biased; // without chance, a simulation replays
                news = news.recv() => news,
                () = at(woken.due) => continue,
            };
            match news {
                None => return,
                Some(StoreEvent::Woken(store)) => woken.by(store, listener.waiting()),
                Some(StoreEvent::Listening(store)) => {
                    // Changes before the subscription were missed, so this counts as a wake-up.
                    if start.heard(store, Ok(())) {
                        woken.by(store, listener.waiting());
                    }
                }
                Some(StoreEvent::Deaf(store, error)) => {
                    start.heard(store, Err(error));
                }
            }
        }
    }

    fn listener(&self, hold: &Hold) -> EchoListener {
        let known = self.shared.holds.find(hold);
        let known = known.map_or_else(RefusedVote::default, |hold| hold.waiting());
        self.shared.echoes.listen(hold, known)
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Reports when a majority has subscribed, or that it cannot.
struct Start {
    majority: usize,
    votes: Vec<Option<Vote<()>>>,
    ready: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl Start {
    fn new<S>(quorum: &QuorumStore<S>, ready: oneshot::Sender<Result<(), StoreError>>) -> Self {
        Self {
            majority: quorum.majority_count(),
            votes: std::iter::repeat_with(|| None)
                .take(quorum.count())
                .collect(),
            ready: Some(ready),
        }
    }

    /// Counts an answer. Returns whether the result was reported before.
    fn heard(&mut self, store: usize, vote: Vote<()>) -> bool {
        if self.ready.is_none() {
            return true;
        }
        self.votes[store] = Some(vote);
        let votes = || self.votes.iter().flatten();
        let answer = if answered(&self.votes) >= self.majority {
            Ok(())
        } else if votes().count() == self.votes.len() {
            Err(no_majority(self.majority, &self.votes, false))
        } else {
            return false;
        };
        if let Some(ready) = self.ready.take() {
            // The caller may have been dropped.
            let _ = ready.send(answer);
        }
        false
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
        let pause = if self.enough {
            Duration::ZERO
        } else {
            self.gather
        };
        let at = Instant::now() + pause;
        // After a split vote, clients must not ask again at the same time.
        let at = waiting.quiet_until.map_or(at, |quiet| quiet.max(at));
        self.due = Some(
            self.due
                .filter(|_| !self.enough)
                .map_or(at, |due| due.min(at)),
        );
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    fn ring(&mut self, signal: &watch::Sender<()>) {
        self.gather = if self.enough {
            GATHER.0
        } else {
            (self.gather * 2).min(GATHER.1)
        };
        self.by = Members::default();
        self.enough = false;
        self.due = None;
        signal.send_replace(());
    }
}

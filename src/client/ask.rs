//! Asking the store: the one wait loop, and the attempt that cleans up after itself.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{LockClient, Wait};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::keeper::{Keeper, LiveHold};
use crate::local::{Share, Terms, Turn};
use crate::lock::{Hold, LockKey, LockMode};
use crate::store::{Answer, Attempt, DynStore, Fencing, Outcome, Wakeups};

/// The longest sleep between two questions: what a lost wake-up costs at most.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// The pause before asking a store again that cannot serve just now.
const TRANSIENT_PAUSE: Duration = Duration::from_millis(50);

impl LockClient {
    /// Asks the store until it grants or the wait is over. `refused`: what is known of the present holder's time.
    ///
    /// A wake-up is never missed: the loop asks, subscribes, asks again, and only then sleeps, until it is woken, or the
    /// store's hint, or one poll. Who expects a refusal subscribes first, and need not ask twice.
    pub(super) async fn ask(
        &self,
        key: &LockKey,
        terms: &Terms,
        wait: Wait,
        turn: Turn,
        mut refused: Option<Duration>,
    ) -> Result<Share, LockError> {
        let mut pending = Pending::new(self, key, terms, wait, turn);
        let mut failures = Failures::default();
        if !wait.patience.is_zero() && pending.expects_refusal() {
            self.listen(&mut pending, wait).await;
        }
        loop {
            if !self.let_others_go_first(&mut pending, wait).await {
                return Err(LockError::Busy {
                    retry_after: refused,
                });
            }
            let sent = Instant::now();
            let Ok(answer) = timeout_at(wait.until, pending.ask()).await else {
                return Err(over(refused));
            };
            match answer {
                Ok(Outcome::Granted { token }) => {
                    let live = LiveHold::new(
                        pending.attempt.hold.clone(),
                        terms.lease,
                        token,
                        sent,
                        pending.attempt.lease,
                    );
                    if !live.is_lost() {
                        return Ok(pending.granted(live, terms));
                    }
                    // The answer took longer than the lease.
                    if pending.is_nested() {
                        return Err(over(None));
                    }
                    pending.renounce(self);
                }
                Ok(Outcome::Refused { retry_after }) => {
                    failures = Failures::default();
                    refused = Some(retry_after);
                    pending.refused(retry_after);
                    if wait.patience.is_zero() {
                        return Err(over(refused));
                    }
                    if pending.ear().is_none() {
                        self.listen(&mut pending, wait).await;
                        if pending.ear().is_some() {
                            continue;
                        }
                    }
                    self.sleep(pending.ear().as_mut(), retry_after, wait).await;
                    pending.turn().courtesy().paid();
                    if Instant::now() >= wait.until {
                        return Err(over(refused));
                    }
                }
                Err(error) => {
                    let unanswered = error.kind() == StoreErrorKind::Unanswered;
                    if unanswered && pending.is_nested() {
                        // It has no other name to ask under.
                        return Err(error.into());
                    }
                    if unanswered {
                        // It may be granted yet, so it is taken back, and the next question bears another name.
                        pending.renounce(self);
                    }
                    if !failures.allow_another(&error, wait).await {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Gives the others to whom this process owes a turn the time for it; false if the wait is over by then.
    async fn let_others_go_first(&self, pending: &mut Pending, wait: Wait) -> bool {
        while let Some(pause) = pending.turn().courtesy().pause() {
            if pending.ear().is_none() {
                self.listen(pending, wait).await;
            }
            let until = wait.until.min(Instant::now() + pause);
            sleep_until(pending.ear().as_mut(), until).await;
            let now = Instant::now();
            if now >= wait.until {
                return false;
            }
            if now >= until {
                break;
            }
            pending.turn().courtesy().paid();
        }
        true
    }

    async fn listen(&self, pending: &mut Pending, wait: Wait) {
        *pending.ear() = self.subscribe(&pending.attempt, wait).await;
    }

    /// Begins to listen; `None` if that cannot be had just now, and asking again must do.
    pub(super) async fn subscribe(&self, attempt: &Attempt, wait: Wait) -> Option<Wakeups> {
        let subscribing = self.inner.store.clone().subscribe(attempt.clone());
        match timeout_at(wait.until, subscribing).await {
            Ok(Ok(wakeups)) => Some(wakeups),
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not subscribe, polling instead");
                None
            }
            Err(_) => None,
        }
    }

    /// An attempt under a new name that leaves no trace when it is refused.
    pub(super) fn attempt(&self, key: &LockKey, terms: &Terms) -> Attempt {
        let lease = terms.lease.duration();
        Attempt {
            hold: Hold {
                key: key.clone(),
                mode: terms.mode,
                id: self.next_hold_id(),
            },
            lease: terms.max_hold.map_or(lease, |max_hold| lease.min(max_hold)),
            patience: None,
            fencing: terms.fenced.then(|| Fencing {
                retention: self.inner.token_retention,
                reserve: self.inner.local.pace().handovers,
            }),
        }
    }

    /// The same, under the name that the turn asks for if it asks for one.
    pub(super) fn attempt_for(&self, key: &LockKey, terms: &Terms, turn: &Turn) -> Attempt {
        let mut attempt = self.attempt(key, terms);
        if let Some(id) = turn.nested() {
            attempt.hold.id = id;
        }
        attempt
    }

    async fn sleep(&self, wakeups: Option<&mut Wakeups>, retry_after: Duration, wait: Wait) {
        let poll = jittered(POLL);
        // One more millisecond: the store rounds its remaining time down.
        let until = Instant::now() + poll.min(retry_after.saturating_add(Duration::from_millis(1)));
        sleep_until(wakeups, until.min(wait.until)).await;
    }
}

/// Until a wake-up, or the end of the time.
async fn sleep_until(wakeups: Option<&mut Wakeups>, until: Instant) {
    let asleep = tokio::time::sleep_until(until);
    match wakeups {
        Some(wakeups) => tokio::select! {
            biased; // without chance, a simulation replays
            () = wakeups.wait() => {}
            () = asleep => {}
        },
        None => asleep.await,
    }
}

/// How often in a row the store has failed.
#[derive(Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Whether the store is to be asked again after `error`: once if it cannot be reached or does not answer, for as long
    /// as the wait lasts if it says that it cannot serve just now; then after a pause.
    pub(super) async fn allow_another(&mut self, error: &StoreError, wait: Wait) -> bool {
        self.0 += 1;
        let again = match error.kind() {
            StoreErrorKind::Unanswered
            | StoreErrorKind::Unreachable
            | StoreErrorKind::Unacknowledged => self.0 < 2,
            StoreErrorKind::Transient if !wait.patience.is_zero() => {
                let pause = Instant::now() + jittered(TRANSIENT_PAUSE);
                tokio::time::sleep_until(pause.min(wait.until)).await;
                true
            }
            StoreErrorKind::Transient => false,
            StoreErrorKind::Refused | StoreErrorKind::Conflict => false,
        };
        again && !wait.patience.is_zero() && Instant::now() < wait.until
    }
}

/// Why the wait is over: somebody holds the lock, or the store never said.
pub(super) fn over(refused: Option<Duration>) -> LockError {
    match refused {
        Some(retry_after) => LockError::Busy {
            retry_after: Some(retry_after),
        },
        None => StoreError::new(
            StoreErrorKind::Unanswered,
            "the wait was over before the store answered",
        )
        .into(),
    }
}

/// Between three quarters and all of `longest`, so that those who were refused together do not ask together for ever.
pub(super) fn jittered(longest: Duration) -> Duration {
    longest.mul_f64(0.75 + fastrand::f64() / 4.0)
}

/// An attempt, from before its first byte until it is a live hold. Dropped before that, it takes back in the background
/// whatever it has left in the store.
struct Pending {
    attempt: Attempt,
    store: Arc<dyn DynStore>,
    keeper: Keeper,
    asking: Option<Answer<Outcome>>,
    trace: Trace,
    /// Until the attempt is a live hold. The next in line may ask when this one no longer does; a nested one, which bears
    /// the same name, only when nothing is left of this.
    turn: Option<Turn>,
}

/// What an attempt has left in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trace {
    Nothing,
    /// A hold, or a waiter's entries.
    Known,
    /// Perhaps a hold, perhaps later.
    Unknown,
}

impl Pending {
    fn new(client: &LockClient, key: &LockKey, terms: &Terms, wait: Wait, turn: Turn) -> Self {
        let mut attempt = client.attempt_for(key, terms, &turn);
        attempt.patience = (!wait.patience.is_zero()).then_some(wait.patience);
        Self {
            attempt,
            store: client.inner.store.clone(),
            keeper: client.inner.local.keeper().clone(),
            asking: None,
            trace: Trace::Nothing,
            turn: Some(turn),
        }
    }

    fn turn(&mut self) -> &mut Turn {
        let turn = self.turn.as_mut();
        turn.expect("it is kept until the attempt is a live hold")
    }

    /// What the attempt listens with.
    fn ear(&mut self) -> &mut Option<Wakeups> {
        self.turn().ear()
    }

    fn is_nested(&mut self) -> bool {
        self.turn().nested().is_some()
    }

    /// Whether others of this process are before it in the store's queue. In every other mode, they would ask for it.
    fn expects_refusal(&mut self) -> bool {
        self.attempt.hold.mode == LockMode::Fair && self.turn().is_crowded()
    }

    fn refused(&mut self, retry_after: Duration) {
        self.turn().refused(retry_after);
    }

    async fn ask(&mut self) -> Result<Outcome, StoreError> {
        let asking = self
            .asking
            .insert(self.store.clone().acquire(self.attempt.clone()));
        let answer = asking.await;
        self.asking = None;
        self.trace = trace(self.trace, &self.attempt, &answer);
        answer
    }

    /// Takes back what is there and goes on under another name.
    fn renounce(&mut self, client: &LockClient) {
        self.take_back(None);
        // A waiter in a queue listens under its name.
        *self.ear() = None;
        self.attempt.hold.id = client.next_hold_id();
    }

    /// The hold is somebody else's to release from now on.
    fn granted(mut self, live: LiveHold, terms: &Terms) -> Share {
        self.trace = Trace::Nothing;
        let turn = self.turn.take();
        turn.expect("it is kept until here").granted(live, terms)
    }

    /// In the background; `until_done` is dropped at the end of that.
    fn take_back(&mut self, until_done: Option<Turn>) {
        let asking = self.asking.take();
        let before = std::mem::replace(&mut self.trace, Trace::Nothing);
        if asking.is_none() && before == Trace::Nothing {
            return;
        }
        let (store, attempt) = (self.store.clone(), self.attempt.clone());
        self.keeper.adopt(Box::pin(async move {
            let after = match asking {
                // Only when the question is answered is it known what to take back.
                Some(asking) => trace(before, &attempt, &asking.await),
                None => before,
            };
            if after != Trace::Nothing {
                withdraw(store, attempt, after == Trace::Unknown).await;
            }
            drop(until_done);
        }));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let until_done = self.turn.take_if(|turn| turn.nested().is_some());
        self.take_back(until_done);
    }
}

fn trace(before: Trace, attempt: &Attempt, answer: &Result<Outcome, StoreError>) -> Trace {
    match answer {
        Ok(Outcome::Granted { .. }) => Trace::Known,
        Ok(Outcome::Refused { .. }) if attempt.patience.is_some() => Trace::Known,
        Err(error) if error.kind() == StoreErrorKind::Unanswered => Trace::Unknown,
        _ => before,
    }
}

/// Withdraws until the store has answered, or the attempt would be over anyway.
pub(super) async fn withdraw(store: Arc<dyn DynStore>, attempt: Attempt, unanswered: bool) {
    let over = Instant::now() + attempt.lease.max(Duration::from_secs(10));
    let mut backoff = Duration::from_millis(20);
    while let Err(error) = store.clone().withdraw(attempt.clone(), unanswered).await {
        if matches!(
            error.kind(),
            StoreErrorKind::Refused | StoreErrorKind::Conflict
        ) || Instant::now() >= over
        {
            let error = &error as &dyn Error;
            tracing::warn!(error, "could not take an attempt back; its lease will");
            return;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(Duration::from_secs(1));
    }
}

//! Several keys in one request: all of them, or any of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::ask::{Failures, POLL, jittered, over, withdraw};
use super::{LockClient, Wait};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::keeper::{Driven, Keeper, LiveHold};
use crate::local::{Admission, Entrance, Share, Terms, Turn};
use crate::lock::{FencingToken, Hold, LockKey, LockMode};
use crate::store::{AllOutcome, Answer, AnyOutcome, Attempt, DynStore, Wakeups};

impl LockClient {
    /// Takes every key. First all at once, in one question; if anybody stands in the way, one after the other: whoever
    /// waits then holds only keys that come before, so that nobody waits in a circle.
    pub(super) async fn take_all(
        &self,
        keys: Vec<(LockKey, LockMode)>,
        terms: &Terms,
        wait: Wait,
    ) -> Result<Vec<Share>, LockError> {
        let mut refused = false;
        if keys.len() > 1 {
            match self.take_all_at_once(&keys, terms, wait).await {
                Ok(Some(shares)) => return Ok(shares),
                Ok(None) => refused = true,
                // The careful way has more patience, with a store that cannot serve just now as well.
                Err(LockError::Unavailable(error))
                    if Failures::default().allow_another(&error, wait).await => {}
                Err(error) => return Err(error),
            }
        }
        let mut shares = Vec::with_capacity(keys.len());
        for (key, mode) in keys {
            let terms = terms.in_mode(mode);
            match self.take(&key, &terms, wait).await {
                Ok(share) => shares.push(share),
                // Somebody was in the way, and the store answered until the wait was over.
                Err(LockError::Unavailable(error))
                    if refused
                        && error.kind() == StoreErrorKind::Unanswered
                        && Instant::now() >= wait.until =>
                {
                    return Err(LockError::Busy { retry_after: None });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(shares)
    }

    /// `None` if any key is in use, by this process or another.
    async fn take_all_at_once(
        &self,
        keys: &[(LockKey, LockMode)],
        terms: &Terms,
        wait: Wait,
    ) -> Result<Option<Vec<Share>>, LockError> {
        let mut turns = Vec::with_capacity(keys.len());
        for (key, mode) in keys {
            match self
                .inner
                .local
                .enter(key, &terms.in_mode(*mode).impatient())
            {
                Ok(Entrance::Admitted(Admission::Turn(turn))) if turn.nested().is_none() => {
                    turns.push(turn);
                }
                Ok(_) | Err(LockError::Busy { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let attempts = turns
            .iter()
            .zip(keys)
            .map(|(_, (key, mode))| self.attempt(key, &terms.in_mode(*mode)))
            .collect();
        let sent = Instant::now();
        let asked = self.question(attempts, |store, attempts| store.acquire_all(attempts));
        let Ok((answer, claim)) = timeout_at(wait.until, asked).await else {
            return Err(over(None));
        };
        let tokens = match answer {
            Ok(AllOutcome::Granted(tokens)) => tokens,
            Ok(AllOutcome::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let granted = turns.into_iter().zip(&*claim.attempts).zip(tokens);
        let shares = granted
            .map(|((turn, attempt), token)| granted_share(turn, attempt, token, sent, terms))
            .collect();
        claim.disarm();
        Ok(Some(shares))
    }

    /// Takes the first key that is free, and waits for all of them while none is.
    pub(super) async fn take_any(
        &self,
        mut keys: Vec<LockKey>,
        terms: &Terms,
        wait: Wait,
    ) -> Result<Share, LockError> {
        // Everybody begins somewhere else, so that the keys are used alike.
        fastrand::shuffle(&mut keys);
        let mut wakeups: Vec<Wakeups> = Vec::new();
        let freed = Arc::new(Notify::new());
        let mut refused = None;
        let mut failures = Failures::default();
        loop {
            let asked = self.try_any(&keys, terms, wait, &freed, refused);
            let retry_after = match asked.await {
                Ok(Ok(share)) => return Ok(share),
                Ok(Err(retry_after)) => retry_after,
                Err(LockError::Unavailable(error))
                    if failures.allow_another(&error, wait).await =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            refused = Some(retry_after);
            failures = Failures::default();
            if wait.patience.is_zero() || Instant::now() >= wait.until {
                return Err(over(refused));
            }
            if wakeups.is_empty() {
                wakeups = self.subscribe_all(&keys, terms, wait).await;
                if !wakeups.is_empty() {
                    continue;
                }
            }
            let pause = jittered(POLL).min(retry_after.saturating_add(Duration::from_millis(1)));
            let until = (Instant::now() + pause).min(wait.until);
            let woken = async {
                match wakeups.is_empty() {
                    true => std::future::pending().await,
                    false => {
                        select_all(wakeups.iter_mut().map(|wakeups| Box::pin(wakeups.wait())))
                            .await;
                    }
                }
            };
            tokio::select! {
                biased; // without chance, a simulation replays
                () = woken => {}
                () = freed.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// One question about every key that nobody in this process uses, after one that was `refused` if there was one.
    async fn try_any(
        &self,
        keys: &[LockKey],
        terms: &Terms,
        wait: Wait,
        freed: &Arc<Notify>,
        refused: Option<Duration>,
    ) -> Result<Result<Share, Duration>, LockError> {
        let mut turns = Vec::with_capacity(keys.len());
        for key in keys {
            match self.inner.local.look_in(key, terms, freed)? {
                Some(Admission::Share(share)) => return Ok(Ok(share)),
                // The owner writes there: it is let in to read without further ado.
                Some(Admission::Turn(turn)) if turn.nested().is_some() => {
                    return self.ask(key, terms, wait, turn, refused).await.map(Ok);
                }
                Some(Admission::Turn(turn)) => turns.push((key, turn)),
                None => {}
            }
        }
        if turns.is_empty() {
            return Ok(Err(POLL));
        }
        let attempts = turns
            .iter()
            .map(|(key, _)| self.attempt(key, terms))
            .collect();
        let sent = Instant::now();
        let asked = self.question(attempts, |store, attempts| store.acquire_any(attempts));
        let Ok((answer, claim)) = timeout_at(wait.until, asked).await else {
            return Err(over(refused));
        };
        match answer {
            Ok(AnyOutcome::Granted { index, token }) => {
                let (_, turn) = turns.swap_remove(index);
                let share = granted_share(turn, &claim.attempts[index], token, sent, terms);
                claim.disarm();
                Ok(Ok(share))
            }
            Ok(AnyOutcome::Refused { retry_after }) => Ok(Err(retry_after)),
            Err(error) => Err(error.into()),
        }
    }

    async fn subscribe_all(&self, keys: &[LockKey], terms: &Terms, wait: Wait) -> Vec<Wakeups> {
        let mut wakeups = Vec::with_capacity(keys.len());
        // It has no place in any fair queue, so it listens where those listen that have none.
        let terms = match terms.mode {
            LockMode::Fair => &terms.in_mode(LockMode::Reentrant),
            _ => terms,
        };
        for key in keys {
            let attempt = self.attempt(key, terms);
            wakeups.extend(self.subscribe(&attempt, wait).await);
        }
        wakeups
    }

    /// Asks one question about several attempts, driven to its end even if the caller goes.
    fn question<T: Granting + Send + 'static>(
        &self,
        attempts: Vec<Attempt>,
        ask: impl FnOnce(Arc<dyn DynStore>, Arc<[Attempt]>) -> Answer<T>,
    ) -> Driven<(Result<T, StoreError>, Claim)> {
        let mut claim = Claim {
            attempts: attempts.into(),
            store: self.inner.store.clone(),
            keeper: self.inner.local.keeper().clone(),
            trace: None,
        };
        let asking = ask(claim.store.clone(), claim.attempts.clone());
        Driven::new(claim.keeper.clone(), async move {
            let answer = asking.await;
            claim.trace = match &answer {
                Ok(outcome) => outcome.grants().then_some(false),
                Err(error) => Some(error.kind() == StoreErrorKind::Unanswered),
            };
            (answer, claim)
        })
    }
}

/// Attempts of which some may be granted. Dropped, it withdraws them all in the background.
struct Claim {
    attempts: Arc<[Attempt]>,
    store: Arc<dyn DynStore>,
    keeper: Keeper,
    /// Whether anything may be held, and then whether a copy of the question may still arrive.
    trace: Option<bool>,
}

impl Claim {
    fn disarm(mut self) {
        self.trace = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(unanswered) = self.trace else { return };
        for attempt in self.attempts.iter() {
            let (store, attempt) = (self.store.clone(), attempt.clone());
            self.keeper
                .adopt(Box::pin(withdraw(store, attempt, unanswered)));
        }
    }
}

/// Whether an answer means that something is held.
trait Granting {
    fn grants(&self) -> bool;
}

impl Granting for AllOutcome {
    fn grants(&self) -> bool {
        matches!(self, Self::Granted(_))
    }
}

impl Granting for AnyOutcome {
    fn grants(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

fn granted_share(
    turn: Turn,
    attempt: &Attempt,
    token: Option<FencingToken>,
    sent: Instant,
    terms: &Terms,
) -> Share {
    let Hold { mode, .. } = attempt.hold;
    let hold = attempt.hold.clone();
    let live = LiveHold::new(hold, terms.lease, token, sent, attempt.lease);
    turn.granted(live, &terms.in_mode(mode))
}

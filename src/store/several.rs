//! Several attempts as one question, for a store that cannot answer them in one step.

use std::time::Duration;

use super::{Attempt, Grant, HoldStatus, LockStore, Outcome, SeveralOutcome, Want, undecided};
use crate::error::{StoreError, StoreErrorKind};

/// Whether no key occurs twice. Only then the answers to the attempts are independent.
#[cfg(feature = "redis")]
pub(super) fn are_apart(attempts: &[Attempt]) -> bool {
    let keys: std::collections::HashSet<_> =
        attempts.iter().map(|attempt| &attempt.hold.key).collect();
    keys.len() == attempts.len()
}

/// [`LockStore::acquire_several`], one attempt after the other.
pub(super) async fn one_by_one<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
    want: Want,
) -> Result<SeveralOutcome, StoreError> {
    match want {
        Want::All => all(store, attempts).await,
        Want::Any => any(store, attempts).await,
    }
}

async fn all<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut grants = Vec::with_capacity(attempts.len());
    for (index, attempt) in attempts.iter().enumerate() {
        let retry_after = match store.acquire(attempt).await {
            Ok(Outcome::Granted { token }) => {
                grants.push(Grant { index, token });
                continue;
            }
            Ok(Outcome::Refused { retry_after }) => Ok(retry_after),
            Err(error) => Err(error),
        };
        release_granted(store, &attempts[..index]).await?;
        return retry_after.map(|retry_after| SeveralOutcome::Refused {
            index: Some(index),
            retry_after,
        });
    }
    Ok(SeveralOutcome::Granted(grants))
}

/// Releases what was granted. The caller withdraws what cannot be released now.
async fn release_granted<S: LockStore + ?Sized>(
    store: &S,
    granted: &[Attempt],
) -> Result<(), StoreError> {
    let mut open = None;
    for attempt in granted {
        match store.release(&attempt.hold, None).await {
            Ok(released) if released.status == HoldStatus::Unknown => open = Some(undecided()),
            Ok(_) => {}
            Err(error) => open = Some(StoreError::new(StoreErrorKind::Unanswered, error)),
        }
    }
    open.map_or(Ok(()), Err)
}

async fn any<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut soonest = None;
    let mut failure = None;
    for (index, attempt) in attempts.iter().enumerate() {
        match store.acquire(attempt).await {
            Ok(Outcome::Granted { token }) => {
                return Ok(SeveralOutcome::Granted(vec![Grant { index, token }]));
            }
            Ok(Outcome::Refused { retry_after }) => {
                soonest = Some(soonest.map_or(retry_after, |soonest| retry_after.min(soonest)));
            }
            // The attempt had no effect. The others may belong to another partition, which may answer.
            Err(error) if error.is_without_effect() && !error.is_final() => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    match (soonest, failure) {
        (None, Some(error)) => Err(error),
        (soonest, _) => Ok(SeveralOutcome::Refused {
            index: None,
            retry_after: soonest.unwrap_or(Duration::MAX),
        }),
    }
}

/// The answers about several holds. It fails if every question failed; otherwise a hold whose question failed is unknown.
#[cfg(feature = "redis")]
pub(super) fn known(
    mut answers: Vec<Result<HoldStatus, StoreError>>,
) -> Result<Vec<HoldStatus>, StoreError> {
    if !answers.is_empty() && answers.iter().all(Result::is_err) {
        // The error of a question that may have had an effect is that of all.
        answers.sort_by_key(|answer| answer.as_ref().is_err_and(StoreError::is_without_effect));
        return answers.into_iter().collect();
    }
    let answers = answers.into_iter();
    let known = answers.map(|answer| answer.unwrap_or(HoldStatus::Unknown));
    Ok(known.collect())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::lock::{Hold, HoldId, LockMode};
    use crate::store::memory::MemoryStore;
    use crate::store::{Capabilities, LockStoreExt, Record, Released, Renewal, Wakeups};

    /// A memory store that cannot decide about the releases of a key.
    struct Undecided {
        inner: MemoryStore,
        key: Option<&'static str>,
    }

    impl LockStore for Undecided {
        async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
            self.inner.acquire(attempt).await
        }

        async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
            self.inner.renew(renewals).await
        }

        async fn release(
            &self,
            hold: &Hold,
            record: Option<&Record>,
        ) -> Result<Released, StoreError> {
            match self.key == Some(hold.key.as_str()) {
                true => Ok(HoldStatus::Unknown.into()),
                false => self.inner.release(hold, record).await,
            }
        }

        async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
            self.inner.withdraw(attempt, unanswered).await
        }

        async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
            self.inner.subscribe(attempt).await
        }

        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }
    }

    fn attempt(key: &str, n: u64) -> Attempt {
        let hold = Hold {
            key: key.into(),
            mode: LockMode::Reentrant,
            id: HoldId::new(Uuid::nil(), n),
        };
        Attempt::new(hold, Duration::from_secs(30))
    }

    /// The caller would count a hold that was released without an answer as lost.
    #[test]
    fn failed_questions_are_without_effect_only_if_each_is() {
        let failed = [StoreErrorKind::Transient, StoreErrorKind::Unanswered]
            .map(|kind| Err(StoreError::new(kind, "it failed")));
        let error = known(failed.into()).expect_err("every question failed");
        assert_eq!(error.kind(), StoreErrorKind::Unanswered);
    }

    /// The caller withdraws what a failed question may have left, and nothing of one that was refused.
    #[tokio::test(start_paused = true)]
    async fn a_question_that_may_have_left_a_hold_is_not_answered_refused() {
        let wanted = ["a", "b", "c"].map(|key| attempt(key, 1));
        for (undecided, kind) in [(None, None), (Some("a"), Some(StoreErrorKind::Unanswered))] {
            let store = Undecided {
                inner: MemoryStore::new(),
                key: undecided,
            };
            store.acquire(&attempt("c", 2)).await.expect("it is free");
            let answer = store.acquire_several(&wanted, Want::All).await;
            assert_eq!(answer.err().map(|error| error.kind()), kind);
            let holds = wanted.each_ref().map(|one| one.hold.clone());
            let left = store.check(&holds).await.expect("it never fails");
            let held = left.iter().filter(|status| **status == HoldStatus::Held);
            assert_eq!(held.count(), usize::from(undecided.is_some()));
        }
    }
}

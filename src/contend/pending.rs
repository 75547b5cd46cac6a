//! Attempts under way, and what they leave in the store.

use std::error::Error;
use std::mem;
use std::sync::Arc;

use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::hold::{Held, valid_for};
use crate::limits::WITHDRAWAL;
use crate::lock::{FencingToken, Hold, LockKey};
use crate::release::Core;
use crate::store::{Answer, Asked, Attempt, Fencing, Grant, Reply, Want};
use crate::table::Terms;

/// One attempt, or several as one question, from before the first byte is sent until they are holds.
///
/// It is the duty to take back what they leave in the store: it does so when it is dropped, after the answer if a question is under
/// way.
pub(crate) struct Pending {
    core: Arc<Core>,
    attempts: SmallVec<[Attempt; 1]>,
    /// `None`: there is one, which has the patience of its request.
    want: Option<Want>,
    /// The answer to a question under way.
    asking: Option<Answer<Reply>>,
    left: Leftover,
    /// An instant before the last question was sent, from which leases count.
    sent: Option<Instant>,
}

/// What attempts have left in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leftover {
    Nothing,
    /// Holds, or a waiter's entries.
    Known,
    /// Perhaps a hold, which may still appear.
    Unknown,
}

impl Pending {
    /// One attempt. With patience, the store records it as a waiter.
    pub(crate) fn one(core: &Arc<Core>, attempt: Attempt) -> Self {
        Self::new(core, smallvec![attempt], None)
    }

    /// An attempt that was answered otherwise than by a grant.
    pub(crate) fn answered(
        core: &Arc<Core>,
        attempt: Attempt,
        answer: &Result<Reply, StoreError>,
    ) -> Self {
        let waits = attempt.patience.is_some();
        let mut pending = Self::one(core, attempt);
        pending.left = Leftover::Nothing.after(None, waits, answer);
        pending
    }

    /// Attempts that have no patience.
    pub(crate) fn several(core: &Arc<Core>, attempts: SmallVec<[Attempt; 1]>, want: Want) -> Self {
        Self::new(core, attempts, Some(want))
    }

    fn new(core: &Arc<Core>, attempts: SmallVec<[Attempt; 1]>, want: Option<Want>) -> Self {
        Self {
            attempts,
            want,
            asking: None,
            left: Leftover::Nothing,
            sent: None,
            core: core.clone(),
        }
    }

    /// The first attempt.
    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempts[0]
    }

    /// Whether a question is under way.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// It goes on for a request with these terms, under the same id.
    pub(super) fn renew(&mut self, terms: &Terms) {
        let Hold { key, id, .. } = &self.attempts[0].hold;
        self.attempts[0] = attempt(&self.core, key, terms, id.number());
    }

    /// Asks the store.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the answer, the question is under way until this is dropped.
    pub(crate) async fn ask(&mut self) -> Result<Reply, StoreError> {
        self.sent = Some(Instant::now());
        let store = &self.core.store;
        let asked = match self.want {
            None => store.acquire(&self.attempts[0]),
            Some(want) => store.acquire_several(self.attempts.to_vec(), want),
        };
        let answer = match asked {
            Asked::Now(answer) => answer,
            Asked::Later(answer) => self.asking.insert(answer).await,
        };
        self.asking = None;
        let waits = self.attempts[0].patience.is_some();
        self.left = self.left.after(self.want, waits, &answer);
        answer
    }

    /// Makes holds of what was granted. `None` if the answer took longer than a lease: then nothing changes.
    pub(crate) fn granted<'a>(
        &mut self,
        grants: &[Grant],
        terms: impl Fn(usize) -> &'a Terms,
        now: Instant,
    ) -> Option<SmallVec<[Arc<Held>; 1]>> {
        let sent = self.sent?;
        let until = |grant: &Grant| sent + valid_for(self.attempts[grant.index].lease);
        if grants.iter().any(|grant| until(grant) <= now) {
            return None;
        }
        let mut holds = SmallVec::new();
        for grant in grants {
            let hold = self.attempts[grant.index].hold.clone();
            holds.push(held(hold, terms(grant.index), grant.token, until(grant)));
        }
        // From here on, the holds are released.
        self.left = Leftover::Nothing;
        Some(holds)
    }
}

/// An attempt with the id of this number. It has patience if the request waits.
pub(crate) fn attempt(core: &Core, key: &LockKey, terms: &Terms, number: u64) -> Attempt {
    let hold = Hold {
        key: key.clone(),
        mode: terms.mode,
        id: core.hold_id(number),
    };
    let fencing = Fencing::new(core.token_retention, core.table.limits.handovers);
    let patience = terms.max_waiters.map(|_| terms.wait);
    let attempt = Attempt::new(hold, terms.granted_lease());
    attempt
        .patience(patience)
        .fencing(terms.needs_token().then_some(fencing))
}

/// A hold that was granted on these terms.
pub(crate) fn held(
    hold: Hold,
    terms: &Terms,
    token: Option<FencingToken>,
    until: Instant,
) -> Arc<Held> {
    Arc::new(Held::new(hold, terms.lease, terms.route, token, until))
}

impl Drop for Pending {
    fn drop(&mut self) {
        let asking = self.asking.take();
        let before = mem::replace(&mut self.left, Leftover::Nothing);
        if asking.is_none() && before == Leftover::Nothing {
            return;
        }
        let attempts = mem::take(&mut self.attempts);
        let (core, want) = (self.core.clone(), self.want);
        let waits = attempts[0].patience.is_some();
        self.core.spawner.run(async move {
            let left = match asking {
                // What to withdraw is known only after the answer.
                Some(asking) => before.after(want, waits, &asking.await),
                None => before,
            };
            left.undo(&core, attempts).await;
        });
    }
}

impl Leftover {
    /// What the attempts have left after a further answer.
    fn after(self, want: Option<Want>, waits: bool, answer: &Result<Reply, StoreError>) -> Self {
        match (answer, want) {
            (Ok(Reply::Granted(_)), _) => Self::Known,
            (Ok(Reply::Refused { .. }), None) if waits => Self::Known,
            (Err(error), _) if error.kind() == StoreErrorKind::Unanswered => Self::Unknown,
            // Some of several may have holds.
            (Err(_), Some(_)) => Self::Known,
            _ => self,
        }
    }

    /// Withdraws what `attempts` have left in the store: their holds, and their places in line.
    async fn undo(self, core: &Arc<Core>, attempts: SmallVec<[Attempt; 1]>) {
        if self != Self::Nothing {
            let unanswered = self == Self::Unknown;
            let withdrawals = attempts.into_iter();
            join_all(withdrawals.map(|attempt| withdraw(core, attempt, unanswered))).await;
        }
    }
}

/// Repeats the withdrawal until the store has answered, or the attempt's lease is over.
async fn withdraw(core: &Arc<Core>, attempt: Attempt, unanswered: bool) {
    let over = Instant::now() + attempt.lease.max(WITHDRAWAL);
    let mut backoff = Backoff::STORE;
    while let Err(error) = core
        .store
        .withdraw(attempt.clone(), unanswered)
        .answer()
        .await
    {
        if error.is_final() || Instant::now() >= over {
            let error = &error as &dyn Error;
            tracing::warn!(error, "could not withdraw an attempt: its lease ends it");
            return;
        }
        backoff.pause().await;
    }
}

/// The error if the store granted a hold that was over before its answer came.
pub(crate) fn answered_late() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store's answer took longer than the lease",
    )
}

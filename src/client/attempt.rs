//! Attempts, with their clean-up.

use std::mem;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::question::{Asking, Grants, Reply, Wanted};
use super::subscribing::Subscribing;
use super::withdrawal::LeftInStore;
use super::{Inner, LockClient};
use crate::error::StoreError;
use crate::lock::{Hold, HoldId, LockKey, LockMode};
use crate::queue::{Share, Terms, Turn};
use crate::store::{Attempt, Fencing, Grant};
use crate::watchdog::valid_for;

/// Attempts on one or several keys, from before the first byte is sent until they are live holds.
///
/// Each attempt has the turn to ask for its key. If the guard is dropped before the grant, it withdraws in the background
/// what the attempts have left in the store, and the turns pass to the next requests at once. The turn of a nested read
/// passes only when nothing is left, because the hold of the next one has the same id.
///
/// Either a question is under way (`asking`), or `left` says what the last one has left in the store.
pub(super) struct AttemptGuard<'a> {
    client: &'a LockClient,
    tries: SmallVec<[Try; 1]>,
    want: Wanted,
    /// An instant before the last question was sent, from which leases count.
    sent: Instant,
    asking: Option<Asking>,
    left: LeftInStore,
}

pub(super) struct Try {
    pub(super) turn: Turn,
    pub(super) attempt: Attempt,
    pub(super) subscribing: Subscribing,
}

impl Try {
    fn new(turn: Turn, attempt: Attempt) -> Self {
        Self {
            turn,
            attempt,
            subscribing: Subscribing::default(),
        }
    }
}

impl<'a> AttemptGuard<'a> {
    pub(super) fn new(client: &'a LockClient, want: Wanted, now: Instant) -> Self {
        Self {
            tries: SmallVec::new(),
            want,
            sent: now,
            asking: None,
            left: LeftInStore::Nothing,
            client,
        }
    }

    /// Adds an attempt on a key whose turn the request has got.
    pub(super) fn add(&mut self, key: &LockKey, terms: &Terms, turn: Turn) {
        let attempt = self.client.attempt(key, terms, self.want, turn.nested());
        self.tries.push(Try::new(turn, attempt));
    }

    /// Adds the only attempt, which the store has answered already.
    pub(super) fn add_answered(
        &mut self,
        turn: Turn,
        attempt: Attempt,
        reply: Result<Reply, StoreError>,
    ) -> Result<Reply, StoreError> {
        self.tries.push(Try::new(turn, attempt));
        self.left = self.left.after(self.want, &reply);
        reply
    }

    /// Gives up all turns. The next attempt is the only one.
    pub(super) fn clear(&mut self) {
        self.tries.clear();
        if let Wanted::Several(_) = self.want {
            self.want = Wanted::One { patience: None };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tries.is_empty()
    }

    pub(super) fn is_one(&self) -> bool {
        matches!(self.want, Wanted::One { .. })
    }

    /// Whether the request can ask the store at once.
    pub(super) fn asks_at_once(&mut self) -> bool {
        let pause = self.only_turn().and_then(|turn| turn.pause());
        !self.is_empty() && pause.is_none() && !self.expects_refusal()
    }

    pub(super) fn is_nested(&self) -> bool {
        self.tries.iter().any(|one| one.turn.nested().is_some())
    }

    /// The turn of a request for one key. A request for any of several has no single turn, and does not yield to other
    /// processes.
    pub(super) fn only_turn(&mut self) -> Option<&mut Turn> {
        match self.want {
            Wanted::One { .. } => self.tries.first_mut().map(|one| &mut one.turn),
            Wanted::Several(_) => None,
        }
    }

    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Try> {
        self.tries.iter_mut()
    }

    /// Whether other requests of this process are before it in the store's queue. This is possible in `Fair` mode only.
    pub(super) fn expects_refusal(&self) -> bool {
        match (&*self.tries, self.want) {
            ([one], Wanted::One { patience: Some(_) }) => {
                one.attempt.hold.mode == LockMode::Fair && one.turn.is_crowded()
            }
            _ => false,
        }
    }

    /// Records the rest of another holder's lease.
    pub(super) fn refused(&mut self, retry_after: Duration) {
        for one in &self.tries {
            one.turn.refused(retry_after);
        }
    }

    /// Asks the store at `now`, and waits for the answer until `until`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the answer, the question remains under way until the guard is dropped.
    pub(super) async fn ask(
        &mut self,
        now: Instant,
        until: Instant,
    ) -> Result<Result<Reply, StoreError>, Elapsed> {
        self.sent = now;
        let attempts = self.tries.iter().map(|one| &one.attempt);
        let asking = Asking::begin(&self.client.inner.store, attempts, self.want);
        let answer = match asking.now() {
            Ok(answer) => answer,
            Err(asking) => {
                let answer = timeout_at(until, self.asking.insert(asking).answer()).await?;
                self.asking = None;
                answer
            }
        };
        self.left = self.left.after(self.want, &answer);
        Ok(answer)
    }

    /// Makes shares of the granted holds, and gives up the other turns. Returns `None` if the answer took longer than a
    /// lease: then nothing changes.
    pub(super) fn granted(
        &mut self,
        grants: Grants,
        terms: &Terms,
    ) -> Option<SmallVec<[Share; 1]>> {
        let now = Instant::now();
        let lease = |grant: &Grant| self.tries[grant.index].attempt.lease;
        if grants
            .iter()
            .any(|grant| self.sent + valid_for(lease(grant)) <= now)
        {
            return None;
        }
        // From here on, the shares release the holds.
        self.left = LeftInStore::Nothing;
        let shares = grants.iter().map(|grant| {
            let Try { turn, attempt, .. } = &mut self.tries[grant.index];
            let hold = attempt.hold.clone();
            let live = terms.live(hold, attempt.lease, grant.token, self.sent);
            turn.granted(live, terms, now)
        });
        let shares = shares.collect();
        self.tries.clear();
        Some(shares)
    }

    /// Withdraws the attempts, and continues with new ids. None of them is nested.
    pub(super) fn restart(&mut self) {
        self.take_back(false);
        for one in &mut self.tries {
            // A waiter in a queue listens on the channel of its id.
            *one.turn.wakeups() = None;
            one.subscribing = Subscribing::default();
            one.attempt.id = self.client.next_hold_id();
            one.attempt.hold.id = one.attempt.id;
        }
    }

    /// Withdraws in the background. At the `end` of the request, a nested turn passes to the next one after the
    /// withdrawal.
    fn take_back(&mut self, end: bool) {
        let asking = self.asking.take();
        let before = mem::replace(&mut self.left, LeftInStore::Nothing);
        if asking.is_none() && before == LeftInStore::Nothing {
            return;
        }
        let attempts: Vec<_> = self.tries.iter().map(|one| one.attempt.clone()).collect();
        let until_done = match end && self.is_nested() {
            true => self.tries.pop(),
            false => None,
        };
        let want = self.want;
        let Inner { store, queues, .. } = &*self.client.inner;
        let store = store.clone();
        queues.background().adopt(Box::pin(async move {
            let after = match asking {
                // What to withdraw is known only after the answer.
                Some(mut asking) => before.after(want, &asking.answer().await),
                None => before,
            };
            after.take_back(&store, attempts, want).await;
            drop(until_done);
        }));
    }
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        self.take_back(true);
    }
}

impl LockClient {
    /// An attempt with a new id; the hold of a `nested` read has the id of the write above it.
    pub(super) fn attempt(
        &self,
        key: &LockKey,
        terms: &Terms,
        want: Wanted,
        nested: Option<HoldId>,
    ) -> Attempt {
        let id = self.next_hold_id();
        Attempt {
            hold: Hold {
                key: key.clone(),
                mode: terms.mode,
                id: nested.unwrap_or(id),
            },
            id,
            lease: terms.granted_lease(),
            patience: match want {
                Wanted::One { patience } => patience,
                Wanted::Several(_) => None,
            },
            in_line: true,
            fencing: terms.needs_token().then(|| Fencing {
                retention: self.inner.token_retention,
                reserve: self.inner.queues.handover_limits().handovers,
            }),
        }
    }
}

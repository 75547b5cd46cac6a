//! A store, and the operations on it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tower_distributed_lock::store::{
    Attempt, Inspect, LockStoreExt, Outcome, Record, Renewal, SeveralOutcome, Wakeups, Want,
};
use tower_distributed_lock::{FencingToken, LockKey};

use super::seen::{Lock, Reply, Seen};
use super::step::{Ask, KEYS, LOCKS, Step, Who, half_past};

/// A store with its listeners.
pub(super) struct World<S> {
    pub(super) store: S,
    pub(super) listening: BTreeMap<Who, Wakeups>,
    /// The largest token of each key, issued or reserved.
    tokens: [u64; KEYS.len()],
    /// Whether attempts stand in line, as far as they would.
    in_line: bool,
}

/// A runtime with paused time, and one with real time.
pub(super) fn runtimes() -> (Runtime, Runtime) {
    let paused = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let real = Builder::new_current_thread().enable_all().build();
    (paused.expect("a runtime"), real.expect("a runtime"))
}

impl<S: Inspect> World<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            listening: BTreeMap::new(),
            tokens: [0; KEYS.len()],
            in_line: true,
        }
    }

    /// A world in which no attempt stands in line, because one of the stores has none.
    pub(super) fn without_a_line(store: S) -> Self {
        Self {
            in_line: false,
            ..Self::new(store)
        }
    }

    fn attempt(&self, attempt: Attempt) -> Attempt {
        let in_line = attempt.in_line && self.in_line;
        attempt.in_line(in_line)
    }

    pub(super) async fn take(&mut self, step: &Step) -> Reply {
        let store = &self.store;
        let key = |key: usize| LockKey::new(KEYS[key]);
        match step {
            Step::Acquire(ask) => {
                let outcome = store.acquire(&self.attempt(ask.attempt())).await;
                if let Ok(Outcome::Granted { token }) = outcome {
                    self.risen(*ask, token);
                }
                outcome.into()
            }
            Step::AcquireAll(asks) => self.take_several(asks, Want::All).await,
            Step::AcquireAny(asks) => self.take_several(asks, Want::Any).await,
            Step::Renew(several) => {
                let renewal = |who: &Who| Renewal::new(who.hold(), who.lease());
                let renewals: Vec<_> = several.iter().map(renewal).collect();
                store.renew(&renewals).await.map(Reply::Standings).into()
            }
            Step::Check(several) => {
                let holds: Vec<_> = several.iter().map(|who| who.hold()).collect();
                store.check(&holds).await.map(Reply::Standings).into()
            }
            Step::Release(who) => {
                let released = store.release(&who.hold(), None).await;
                released.map(Reply::Released).into()
            }
            Step::ReleaseRecording(who, ticks) => {
                let record = Record::new(format!("{who:?} {ticks}\0"), half_past(*ticks));
                let released = store.release(&who.hold(), Some(&record)).await;
                released.map(Reply::Recorded).into()
            }
            Step::Record(of) => store.record(&key(*of)).await.map(Reply::Record).into(),
            Step::Withdraw(who, unanswered) => {
                let withdrawn = store
                    .withdraw(&self.attempt(who.attempt()), *unanswered)
                    .await;
                withdrawn.map(|()| Reply::Nothing).into()
            }
            Step::Listen(who) => {
                let wakeups = store.subscribe(&self.attempt(who.attempt())).await;
                let wakeups = wakeups.map(|wakeups| self.listening.insert(*who, wakeups));
                wakeups.map(|_| Reply::Nothing).into()
            }
            Step::StopListening(who) => {
                self.listening.remove(who);
                Reply::Nothing
            }
            Step::ForceUnlock(of) => store
                .force_unlock(&key(*of))
                .await
                .map(Reply::Forced)
                .into(),
            Step::SetPermits(of, limit) => {
                let limit = limit.and_then(NonZeroU32::new);
                let set = store.set_permits(&key(*of), limit).await;
                set.map(|()| Reply::Nothing).into()
            }
            Step::Ticks(_) => Reply::Nothing,
        }
    }

    async fn take_several(&mut self, asks: &[Ask], want: Want) -> Reply {
        // Attempts on several keys have no patience.
        let attempts = asks.iter().map(|ask| ask.attempt().patience(None));
        let attempts: Vec<_> = attempts.collect();
        let outcome = self.store.acquire_several(&attempts, want).await;
        if let Ok(SeveralOutcome::Granted(grants)) = &outcome {
            for grant in grants {
                self.risen(asks[grant.index], grant.token);
            }
        }
        Reply::several(outcome, want)
    }

    fn risen(&mut self, ask: Ask, token: Option<FencingToken>) {
        if let (Some(token), Some(reserve)) = (token, ask.fenced) {
            let last = &mut self.tokens[ask.who.key];
            assert!(token.value() > *last, "{ask:?}: token {token} after {last}");
            *last = token.value() + u64::from(reserve);
        }
    }

    /// The actors that were woken since the last call.
    fn woken(&mut self) -> BTreeSet<Who> {
        let mut woken = BTreeSet::new();
        for (who, wakeups) in &mut self.listening {
            if wakeups.wait().now_or_never() == Some(true) {
                woken.insert(*who);
            }
        }
        woken
    }

    pub(super) async fn look(&mut self, reply: Reply) -> Seen {
        Seen {
            reply,
            woken: self.woken(),
            locks: self.locks().await,
        }
    }

    async fn locks(&self) -> [Lock; KEYS.len()] {
        let keys = KEYS.map(LockKey::new);
        let inspections = join_all(keys.iter().map(|key| self.store.inspect(key))).await;
        let mut locks: [Lock; KEYS.len()] = Default::default();
        for (lock, inspection) in locks.iter_mut().zip(inspections) {
            *lock = Lock::new(inspection.expect("only locks are there"));
        }
        locks
    }

    /// Leaves every limit to attempts again.
    pub(super) async fn no_limit_is_set(&self) {
        for key in &KEYS[LOCKS..] {
            let left = self.store.set_permits(&LockKey::new(*key), None).await;
            left.expect("the key is for permits");
        }
    }

    /// Every actor stops listening, and withdraws its attempts.
    pub(super) async fn all_leave(&mut self, asked: &BTreeSet<Who>) {
        self.listening.clear();
        for who in asked {
            let withdrawn = self
                .store
                .withdraw(&self.attempt(who.attempt()), false)
                .await;
            withdrawn.expect("it is taken back");
        }
    }
}

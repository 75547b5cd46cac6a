//! A store whose behaviour a test sets.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use tower_distributed_lock::store::Inspection;

use super::*;

/// How the store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// Fails at once, without effect.
    Failing(StoreErrorKind),
    /// Waits this long, then takes effect and answers.
    Slow(Duration),
    /// Takes effect, and answers this much later.
    Late(Duration),
    /// Takes effect, and answers that the result is unknown.
    Unanswered,
    /// Does nothing until its mood changes.
    Hanging,
    /// Releases nothing, because it cannot decide whether it carries a hold.
    Undecided,
}

/// Clones are the same store.
#[derive(Clone)]
pub(super) struct Scripted(Arc<Script>);

struct Script {
    memory: Mutex<MemoryStore>,
    mood: watch::Sender<Mood>,
    log: Mutex<Vec<&'static str>>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self(Arc::new(Script {
            memory: Mutex::default(),
            mood: watch::Sender::new(Mood::Well),
            log: Mutex::default(),
        }))
    }
}

impl Scripted {
    pub(super) fn set(&self, mood: Mood) {
        self.0.mood.send_replace(mood);
    }

    /// Loses all its data.
    pub(super) fn forget(&self) {
        *self.0.memory.lock().unwrap() = MemoryStore::new();
    }

    /// The store behind the moods.
    pub(super) fn memory(&self) -> MemoryStore {
        self.0.memory.lock().unwrap().clone()
    }

    /// Whether the store carries the hold, whatever its mood.
    pub(super) async fn carries(&self, hold: &Hold) -> bool {
        let held = self.memory().check(std::slice::from_ref(hold)).await;
        held.unwrap()[0] == HoldStatus::Held
    }

    /// The operations that took effect, in order.
    pub(super) fn log(&self) -> Vec<&'static str> {
        self.0.log.lock().unwrap().clone()
    }

    /// How many operations wait for it to recover.
    pub(super) fn hanging(&self) -> usize {
        self.0.mood.receiver_count()
    }

    async fn recovers(&self) {
        let mut moods = self.0.mood.subscribe();
        let changed = moods.wait_for(|&mood| mood != Mood::Hanging).await;
        changed.expect("the store is there");
    }

    async fn moody<T>(
        &self,
        name: &'static str,
        effect: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mood = *self.0.mood.borrow();
        match mood {
            Mood::Failing(kind) => return Err(StoreError::new(kind, "as planned")),
            Mood::Slow(time) => sleep(time).await,
            Mood::Hanging => self.recovers().await,
            Mood::Well | Mood::Late(_) | Mood::Unanswered | Mood::Undecided => {}
        }
        self.0.log.lock().unwrap().push(name);
        let answer = effect.await;
        match mood {
            Mood::Late(time) => sleep(time).await,
            Mood::Unanswered => {
                return Err(StoreError::new(StoreErrorKind::Unanswered, "as planned"));
            }
            _ => {}
        }
        answer
    }
}

impl LockStore for Scripted {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.moody("acquire", async { self.memory().acquire(attempt).await })
            .await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let checks = renewals.iter().all(|renewal| renewal.lease.is_none());
        let name = if checks { "check" } else { "renew" };
        self.moody(name, async { self.memory().renew(renewals).await })
            .await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        if *self.0.mood.borrow() == Mood::Undecided {
            return Ok(HoldStatus::Unknown.into());
        }
        let release = async { self.memory().release(hold, record).await };
        self.moody("release", release).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.recovers().await;
        self.memory().audit().await
    }

    fn capabilities(&self) -> Capabilities {
        self.memory().capabilities().inspect(self.clone())
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let name = if unanswered { "bury" } else { "withdraw" };
        self.moody(name, async {
            self.memory().withdraw(attempt, unanswered).await
        })
        .await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.moody("subscribe", async {
            self.memory().subscribe(attempt).await
        })
        .await
    }
}

/// Of the moods, an inspection depends on [`Mood::Hanging`] alone.
impl Inspect for Scripted {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        self.recovers().await;
        self.memory().inspect(key).await
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        self.moody("force", async { self.memory().force_unlock(key).await })
            .await
    }
}

//! An owner of locks in Java.

use std::sync::Arc;
use std::time::Duration;

use super::{Asked, Redisson};
use crate::interop::Kind;

/// A thread of a [`Redisson`], which executes its questions one after the other.
#[derive(Debug, Clone)]
pub(in crate::interop) struct JavaThread {
    pub(in crate::interop) redisson: Arc<Redisson>,
    name: Arc<str>,
}

impl JavaThread {
    /// A thread that the driver knows by `name`, and starts when it is first asked for.
    pub(super) fn new(redisson: Arc<Redisson>, name: String) -> Self {
        Self {
            redisson,
            name: name.into(),
        }
    }

    /// Waits without limit. `None`: the watchdog's lease.
    pub(in crate::interop) fn lock(
        &self,
        kind: Kind,
        name: &str,
        lease: Option<Duration>,
    ) -> Asked<()> {
        let (thread, lease) = (&self.name, millis(lease));
        let question = format_args!("lock {thread} {kind} {name} {lease}");
        self.redisson.ask(question)
    }

    /// Waits for at most `wait`, with the watchdog's lease. Returns whether it got the lock. Zero is `tryLock()`, which never
    /// queues.
    pub(in crate::interop) fn try_lock(
        &self,
        kind: Kind,
        name: &str,
        wait: Duration,
    ) -> Asked<bool> {
        let thread = &self.name;
        let question = match wait.as_millis() {
            0 => format!("trylock {thread} {kind} {name}"),
            wait => format!("trylock {thread} {kind} {name} {wait} -1"),
        };
        self.redisson.ask(question)
    }

    pub(in crate::interop) fn unlock(&self, kind: Kind, name: &str) -> Asked<()> {
        let thread = &self.name;
        let question = format_args!("unlock {thread} {kind} {name}");
        self.redisson.ask(question)
    }

    /// Waits for the fenced lock, and returns its token.
    pub(in crate::interop) fn lock_and_get_token(&self, name: &str) -> Asked<u64> {
        let question = format_args!("locktoken {} {name}", self.name);
        self.redisson.ask(question)
    }

    /// The id of its holds in Redis. It answers even while it waits.
    pub(in crate::interop) fn owner(&self) -> Asked<String> {
        self.redisson.ask(format_args!("owner {}", self.name))
    }

    /// How many times this thread holds the lock.
    pub(in crate::interop) fn hold_count(&self, kind: Kind, name: &str) -> Asked<u64> {
        let thread = &self.name;
        let question = format_args!("holdcount {thread} {kind} {name}");
        self.redisson.ask(question)
    }
}

fn millis(lease: Option<Duration>) -> i128 {
    lease.map_or(-1, |lease| lease.as_millis().cast_signed())
}

//! Owners of locks, in either language.

use std::time::Duration;

use tower_distributed_lock::{FencingToken, Lease, LockClient, LockError, LockGuard, Owner};

use super::Kind;
use super::redisson::{JavaThread, LIMIT, Version, now};

/// One owner of locks.
#[derive(Debug, Clone)]
pub(super) enum Party {
    /// A thread of a Redisson, which renews to [`WATCHDOG`](super::WATCHDOG).
    Java(JavaThread),
    /// An owner in a client of ours.
    Rust(LockClient, Owner),
}

impl Party {
    pub(super) fn is_java(&self) -> bool {
        matches!(self, Self::Java(_))
    }

    /// Whether its version has locks of this kind.
    pub(super) fn knows(&self, kind: Kind) -> bool {
        match self {
            Self::Java(thread) => thread.redisson.version.knows(kind),
            Self::Rust(..) => true,
        }
    }

    /// Its name in reports.
    pub(super) fn language(&self) -> &'static str {
        match self {
            Self::Java(thread) => match thread.redisson.version {
                Version::V4_7 => "Redisson 4.7",
                Version::V3_15 => "Redisson 3.15",
            },
            Self::Rust(..) => "Rust",
        }
    }

    /// Waits for the lock, for longer than any lease.
    pub(super) async fn lock(&self, kind: Kind, name: &str, lease: Lease) -> Held {
        match self {
            Self::Java(thread) => {
                let lease = match lease {
                    Lease::Renewed(_) => None,
                    Lease::Fixed(lease) => Some(lease),
                };
                let answer = thread.lock(kind, name, lease).await;
                let since = answer.ended;
                answer.unwrap();
                Held::java(thread, kind, name, since)
            }
            Self::Rust(client, owner) => {
                let request = kind.request(client, name).owner(owner).lease(lease);
                let guard = request.wait(LIMIT).await;
                Held::rust(guard.unwrap_or_else(|error| panic!("{kind} lock on {name}: {error}")))
            }
        }
    }

    /// Waits for at most `wait`; zero tries once.
    pub(super) async fn try_lock(&self, kind: Kind, name: &str, wait: Duration) -> Option<Held> {
        match self {
            Self::Java(thread) => {
                let answer = thread.try_lock(kind, name, wait).await;
                let since = answer.ended;
                let granted = answer.unwrap();
                granted.then(|| Held::java(thread, kind, name, since))
            }
            Self::Rust(client, owner) => {
                let request = kind.request(client, name).owner(owner);
                match request.lease(super::LEASE).wait(wait).await {
                    Ok(guard) => Some(Held::rust(guard)),
                    Err(LockError::Busy { .. }) => None,
                    Err(error) => panic!("{kind} lock on {name}: {error:?}"),
                }
            }
        }
    }
}

/// A lock that a [`Party`] holds.
#[derive(Debug)]
pub(super) struct Held {
    /// When its owner got the grant, by the clock of [`now`].
    pub(super) since: Duration,
    by: Holder,
}

#[derive(Debug)]
enum Holder {
    Java(JavaThread, Kind, String),
    Rust(LockGuard),
}

impl Held {
    fn java(thread: &JavaThread, kind: Kind, name: &str, since: Duration) -> Self {
        Self {
            since,
            by: Holder::Java(thread.clone(), kind, name.to_owned()),
        }
    }

    fn rust(guard: LockGuard) -> Self {
        Self {
            since: now(),
            by: Holder::Rust(guard),
        }
    }

    /// The token of a grant of ours.
    pub(super) fn token(&self) -> Option<FencingToken> {
        match &self.by {
            Holder::Java(..) => None,
            Holder::Rust(guard) => guard.fencing_token(),
        }
    }

    /// Releases the lock, which must not have been lost. Returns the moment until which it was certainly held.
    pub(super) async fn release(self) -> Duration {
        match self.by {
            Holder::Java(thread, kind, name) => {
                let answer = thread.unlock(kind, &name).await;
                let began = answer.began;
                answer.unwrap();
                began
            }
            Holder::Rust(guard) => {
                let began = now();
                let key = guard.key().clone();
                let released = guard.release().await;
                released.unwrap_or_else(|error| panic!("release of {key}: {error}"));
                began
            }
        }
    }
}

//! The time during which renewals fail.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{LiveHold, Phase};
use crate::error::StoreError;

/// How often one outage is spoken of while it lasts.
const REMINDER: Duration = Duration::from_secs(10);

/// The holds that could not be renewed when that was last tried. Renewal is tried several times a second, so not every
/// failure is worth a line in the log.
#[derive(Default)]
pub(super) struct Outage {
    /// By address, which is a hold's own for as long as anybody remembers it.
    failing: HashMap<usize, Weak<LiveHold>>,
    began: Option<Instant>,
    /// When it was last spoken of.
    said: Option<Instant>,
}

/// What is to be said of it, outside the keeper's mutex: subscribers are foreign code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Began { holds: usize },
    Lasts { holds: usize, outage: Duration },
    Over { outage: Duration },
}

impl Outage {
    /// These could not be renewed.
    pub(super) fn failed<'a>(
        &mut self,
        lives: impl Iterator<Item = &'a Arc<LiveHold>>,
        now: Instant,
    ) -> Option<News> {
        for live in lives {
            self.failing.insert(address(live), Arc::downgrade(live));
        }
        let Some(began) = self.began else {
            self.began = Some(now);
            self.said = Some(now);
            return Some(News::Began {
                holds: self.failing.len(),
            });
        };
        if self.said.is_some_and(|said| now < said + REMINDER) {
            return None;
        }
        self.said = Some(now);
        self.forget_the_ended();
        Some(News::Lasts {
            holds: self.failing.len(),
            outage: now - began,
        })
    }

    /// These were answered for. The outage is over when no other hold waits for that.
    pub(super) fn answered<'a>(
        &mut self,
        lives: impl Iterator<Item = &'a Arc<LiveHold>>,
        now: Instant,
    ) -> Option<News> {
        let began = self.began?;
        for live in lives {
            self.failing.remove(&address(live));
        }
        self.forget_the_ended();
        if !self.failing.is_empty() {
            return None;
        }
        *self = Self::default();
        Some(News::Over {
            outage: now - began,
        })
    }

    fn forget_the_ended(&mut self) {
        self.failing.retain(|_, live| {
            let live = live.upgrade();
            live.is_some_and(|live| live.phase() == Phase::Held)
        });
    }
}

impl News {
    /// Logs it. `error` is the latest failure.
    pub(super) fn say(self, error: Option<&StoreError>) {
        let error = error.map(|error| error as &dyn Error);
        match self {
            Self::Began { holds } => tracing::warn!(error, holds, "could not renew"),
            Self::Lasts { holds, outage } => {
                tracing::warn!(error, holds, ?outage, "still cannot renew");
            }
            Self::Over { outage } => tracing::info!(?outage, "renewals are answered again"),
        }
    }
}

fn address(live: &Arc<LiveHold>) -> usize {
    Arc::as_ptr(live).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Hold, HoldId, Lease, LockKey, LockMode};

    fn hold(n: u64) -> Arc<LiveHold> {
        let lease = Duration::from_secs(30);
        let hold = Hold {
            key: LockKey::new("k"),
            mode: LockMode::Reentrant,
            id: HoldId::new(uuid::Uuid::nil(), n),
        };
        let now = Instant::now();
        Arc::new(LiveHold::new(hold, Lease::Renewed(lease), None, now, lease))
    }

    #[test]
    fn an_outage_is_said_once_then_seldom_and_its_end_when_the_last_hold_is_answered_for() {
        let (one, other, released) = (hold(1), hold(2), hold(3));
        let mut outage = Outage::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(outage.answered([&one].into_iter(), start), None);
        let first = outage.failed([&one, &released].into_iter(), start);
        assert_eq!(first, Some(News::Began { holds: 2 }));
        for millis in (100..10_000).step_by(100) {
            assert_eq!(outage.failed([&one].into_iter(), after(millis)), None);
            // Another connection works.
            assert_eq!(outage.answered([&other].into_iter(), after(millis)), None);
        }
        assert!(released.begin_release());
        let reminder = outage.failed([&one].into_iter(), after(10_000));
        let lasts = Duration::from_secs(10);
        assert_eq!(
            reminder,
            Some(News::Lasts {
                holds: 1,
                outage: lasts
            })
        );
        let over = outage.answered([&one].into_iter(), after(10_100));
        let outage_time = Duration::from_millis(10_100);
        assert_eq!(
            over,
            Some(News::Over {
                outage: outage_time
            })
        );
        let again = outage.failed([&one].into_iter(), after(10_200));
        assert_eq!(again, Some(News::Began { holds: 1 }));
        // Nobody is left who could be renewed.
        drop(one);
        let over = outage.answered([&other].into_iter(), after(10_300));
        assert!(matches!(over, Some(News::Over { .. })));
    }
}

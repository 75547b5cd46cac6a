//! Recent losses and refusals.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use crate::error::LockError;
use crate::lock::LockKey;
use crate::telemetry::{Route, waiting};

/// How many losses, and how many refusals, are kept. They are kept separately, so that many
/// refusals do not remove losses.
const KEPT: usize = 128;

/// The latest events of one client, and their number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    /// Losses and broken locks, the oldest first.
    losses: VecDeque<Event>,
    refusals: VecDeque<Event>,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) broken: u64,
    /// The number of the last one.
    pub(crate) last: u64,
}

/// An event of a lock, or of a request for one.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Rises by one with each event of the client.
    pub(crate) number: u64,
    pub(crate) at: SystemTime,
    /// The first key, of several.
    pub(crate) key: LockKey,
    /// `None` for a lock that was broken: it may have had several.
    pub(crate) mode: Option<&'static str>,
    pub(crate) route: Route,
    pub(crate) cause: EventCause,
}

#[derive(Debug, Clone)]
pub(crate) enum EventCause {
    Lost(&'static str),
    Refused {
        error: LockError,
        waited: Duration,
    },
    /// Broken by a user, from this address.
    Broken(String),
}

impl Events {
    pub(super) fn add(&mut self, mut event: Event) {
        self.last += 1;
        event.number = self.last;
        let (kept, count) = match event.cause {
            EventCause::Lost(_) => (&mut self.losses, &mut self.lost),
            EventCause::Broken(_) => (&mut self.losses, &mut self.broken),
            EventCause::Refused { .. } => (&mut self.refusals, &mut self.refused),
        };
        *count += 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(event);
    }

    /// The latest first.
    pub(crate) fn latest(&self) -> Vec<&Event> {
        let mut all: Vec<_> = self.losses.iter().chain(&self.refusals).collect();
        all.sort_by_key(|event| std::cmp::Reverse(event.number));
        all
    }
}

impl Event {
    pub(super) fn lost(
        key: &LockKey,
        mode: &'static str,
        route: &Route,
        reason: &'static str,
    ) -> Self {
        Self::new(key, Some(mode), route, EventCause::Lost(reason))
    }

    pub(super) fn refused(
        key: &LockKey,
        mode: &'static str,
        route: &Route,
        error: &LockError,
        waited: Duration,
    ) -> Self {
        let error = error.clone();
        Self::new(
            key,
            Some(mode),
            route,
            EventCause::Refused { error, waited },
        )
    }

    pub(super) fn broken(key: &LockKey, by: String) -> Self {
        Self::new(key, None, &Route::default(), EventCause::Broken(by))
    }

    fn new(key: &LockKey, mode: Option<&'static str>, route: &Route, cause: EventCause) -> Self {
        Self {
            number: 0,
            at: SystemTime::now(),
            key: key.clone(),
            mode,
            route: route.clone(),
            cause,
        }
    }
}

impl EventCause {
    /// `lost`, `refused` or `broken`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Refused { .. } => "refused",
            Self::Broken(_) => "broken",
        }
    }

    /// The short name of a refusal, as the spans of waits have it.
    pub(crate) fn outcome(&self) -> Option<&'static str> {
        match self {
            Self::Refused { error, .. } => Some(waiting::outcome(error)),
            _ => None,
        }
    }

    pub(crate) fn waited(&self) -> Option<Duration> {
        match self {
            Self::Refused { waited, .. } => Some(*waited),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_displace_no_loss() {
        let mut events = Events::default();
        let (key, route) = (LockKey::new("k"), Route::default());
        events.add(Event::lost(&key, "write", &route, "why"));
        for _ in 0..10_000 {
            let error = LockError::Overloaded;
            events.add(Event::refused(
                &key,
                "write",
                &route,
                &error,
                Duration::ZERO,
            ));
        }
        let latest = events.latest();
        assert_eq!(latest.len(), KEPT + 1);
        assert_eq!(latest[0].number, 10_001);
        assert_eq!(latest[KEPT].cause.kind(), "lost");
        assert_eq!((events.lost, events.refused), (1, 10_000));
    }
}

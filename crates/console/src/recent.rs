//! Recent losses and refusals.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use crate::error::LockError;
use crate::lock::LockKey;
use crate::telemetry::Route;

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
    /// Adds an event of `key`. A lock that was broken has no `mode`.
    pub(super) fn add(
        &mut self,
        key: &LockKey,
        mode: Option<&'static str>,
        route: &Route,
        cause: EventCause,
    ) {
        let (kept, count) = match cause {
            EventCause::Lost(_) => (&mut self.losses, &mut self.lost),
            EventCause::Broken(_) => (&mut self.losses, &mut self.broken),
            EventCause::Refused { .. } => (&mut self.refusals, &mut self.refused),
        };
        *count += 1;
        self.last += 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Event {
            number: self.last,
            at: SystemTime::now(),
            key: key.clone(),
            mode,
            route: route.clone(),
            cause,
        });
    }

    /// The latest first.
    pub(crate) fn latest(&self) -> Vec<&Event> {
        let mut all: Vec<_> = self.losses.iter().chain(&self.refusals).collect();
        all.sort_by_key(|event| std::cmp::Reverse(event.number));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_displace_no_loss() {
        let mut events = Events::default();
        let (key, route) = (LockKey::new("k"), Route::default());
        events.add(&key, Some("write"), &route, EventCause::Lost("why"));
        for _ in 0..10_000 {
            let (error, waited) = (LockError::Overloaded, Duration::ZERO);
            let cause = EventCause::Refused { error, waited };
            events.add(&key, Some("write"), &route, cause);
        }
        let latest = events.latest();
        assert_eq!(latest.len(), KEPT + 1);
        assert_eq!(latest[0].number, 10_001);
        assert!(matches!(latest[KEPT].cause, EventCause::Lost("why")));
        assert_eq!((events.lost, events.refused), (1, 10_000));
    }
}

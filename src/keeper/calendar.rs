//! When each hold is next looked at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::in_batches;
use super::live::{LiveHold, Phase};
use crate::lock::Lease;
use crate::store::BATCH;

/// Where a hold stands in the calendar. The number keeps holds of one instant apart.
pub(super) type Place = (Instant, u64);

/// Holds to renew, and for how long.
pub(super) type Batch = Vec<(Arc<LiveHold>, Duration)>;

/// Every live hold, by when it is next looked at.
#[derive(Default)]
pub(super) struct Calendar {
    holds: BTreeMap<Place, Arc<LiveHold>>,
    /// When whoever looks wakes by itself.
    alarm: Option<Instant>,
}

impl Calendar {
    /// Enters a new hold, and says whether that is before the alarm.
    pub(super) fn enter(&mut self, live: &Arc<LiveHold>) -> bool {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let place = (first_look(live), NUMBER.fetch_add(1, Ordering::Relaxed));
        self.put(place, live);
        if self.alarm.is_some_and(|alarm| place.0 >= alarm) {
            return false;
        }
        // Whatever the task finds when it looks: if the hold has gone by then, and the alarm were forgotten with it, every
        // short hold would wake the task, and that one another thread.
        self.alarm = Some(place.0);
        true
    }

    /// Forgets a hold, wherever it stands.
    pub(super) fn remove(&mut self, live: &LiveHold) {
        if let Some(place) = live.move_to(None) {
            self.holds.remove(&place);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<LiveHold>> {
        self.holds.values().cloned().collect()
    }

    /// Moves a hold that is still here.
    pub(super) fn postpone(&mut self, live: &Arc<LiveHold>, to: Instant) {
        if let Some(place) = live.move_to(None) {
            self.holds.remove(&place);
            self.put((to.min(live.deadline()), place.1), live);
        }
    }

    /// Looks at every hold whose time has come: sorts out those past their deadline, returns those to renew, each batch
    /// from one part of the store.
    pub(super) fn due(
        &mut self,
        now: Instant,
        part: impl Fn(&LiveHold) -> u16,
        lost: &mut Vec<Arc<LiveHold>>,
    ) -> Vec<Batch> {
        let mut renewals = BTreeMap::<u16, Vec<_>>::new();
        let mut count = 0;
        while let Some((&place, live)) = self.holds.first_key_value() {
            let live = live.clone();
            let deadline = live.deadline();
            // A renewal a little early is as good, and fills a batch; more than one at a time would keep the store from
            // others. It begins none: a renewal that failed, and is to be tried again in a moment, would be tried without
            // a pause.
            let early = if place.0 < deadline && (1..BATCH).contains(&count) {
                live.lease.duration() / 30
            } else {
                Duration::ZERO
            };
            if place.0 > now + early {
                break;
            }
            self.holds.remove(&place);
            live.move_to(None);
            if now >= deadline {
                lost.push(live);
                continue;
            }
            // Until an answer moves it, the next look is at the deadline.
            self.put((deadline, place.1), &live);
            if let Lease::Renewed(_) = live.lease
                && let Some(lease) = live.next_lease(now)
            {
                let renewals = renewals.entry(part(&live)).or_default();
                renewals.push((live, lease));
                count += 1;
            }
        }
        renewals.into_values().flat_map(in_batches).collect()
    }

    /// When to look again.
    pub(super) fn set_alarm(&mut self, now: Instant) -> Instant {
        let first = self
            .holds
            .first_key_value()
            .map_or_else(|| now + Duration::from_secs(3600), |(place, _)| place.0);
        // An alarm is not put off when the hold that it was for has gone: the next hold would have to put it forward
        // again, and wake the task for that, which costs more than waking once for nothing.
        let alarm = match self.alarm {
            Some(alarm) if alarm > now => alarm.min(first),
            _ => first,
        };
        self.alarm = Some(alarm);
        alarm
    }

    /// Nobody looks any more.
    pub(super) fn forget_alarm(&mut self) {
        self.alarm = None;
    }

    fn put(&mut self, place: Place, live: &Arc<LiveHold>) {
        if live.phase() == Phase::Held {
            live.move_to(Some(place));
            self.holds.insert(place, live.clone());
        }
    }
}

/// When a new hold is first renewed: at any time within a third of its lease, short holds excepted, so that holds that were
/// granted together are not renewed together ever after.
fn first_look(live: &LiveHold) -> Instant {
    match live.lease {
        Lease::Renewed(lease) => {
            let third = (lease / 3).mul_f64(0.25 + 0.75 * fastrand::f64());
            (Instant::now() + third).min(live.deadline())
        }
        Lease::Fixed(_) => live.deadline(),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::lock::{Hold, HoldId, LockMode};

    const LEASE: Duration = Duration::from_secs(30);

    /// So many holds, and the calendar that they are in.
    fn calendar(holds: u64) -> (Calendar, Vec<Arc<LiveHold>>) {
        let (now, mut calendar) = (Instant::now(), Calendar::default());
        let hold = |number| Hold {
            key: format!("account:{number}").into(),
            mode: LockMode::Reentrant,
            id: HoldId::new(Uuid::nil(), number),
        };
        let live = |number| LiveHold::new(hold(number), Lease::Renewed(LEASE), None, now, LEASE);
        let all: Vec<_> = (0..holds).map(|number| Arc::new(live(number))).collect();
        for live in &all {
            calendar.enter(live);
        }
        (calendar, all)
    }

    fn due(calendar: &mut Calendar, now: Instant) -> usize {
        let due = calendar.due(now, |_| 0, &mut Vec::new());
        due.iter().map(Batch::len).sum()
    }

    #[test]
    fn what_is_soon_due_fills_a_batch_and_no_more() {
        let (mut calendar, all) = calendar(20_000);
        let first = calendar.set_alarm(Instant::now());
        assert_eq!(due(&mut calendar, first), BATCH);
        // They are spread over their third: within a second of the first, there are many more.
        let mut renewed = BATCH;
        while renewed < all.len() {
            let next = calendar.holds.first_key_value().expect("not all").0.0;
            assert!(next < first + LEASE / 3, "{renewed} of {}", all.len());
            renewed += due(&mut calendar, next);
        }
    }

    #[test]
    fn what_is_due_is_renewed_however_much_it_is() {
        let (mut calendar, all) = calendar(5 * BATCH as u64);
        let end = Instant::now() + LEASE / 3;
        assert_eq!(due(&mut calendar, end), all.len());
    }
}

//! When the keeper is woken for a visit.

use futures_util::FutureExt;

use super::*;

fn agenda() -> Agenda {
    Agenda {
        origin: Instant::now(),
        alarm: AtomicU64::new(u64::MAX),
        work: Notify::new(),
        checks: Mutex::default(),
    }
}

fn is_woken(agenda: &Agenda) -> bool {
    agenda.work.notified().now_or_never().is_some()
}

/// Each wake-up is a round through all shards, so that a visit after the alarm must cost none.
#[tokio::test(start_paused = true)]
async fn the_keeper_is_woken_for_a_visit_before_its_alarm_alone() {
    let agenda = agenda();
    let at = |seconds| agenda.origin + Duration::from_secs(seconds);
    agenda.begin();
    agenda.set(at(10));
    for (visit, wakes) in [(20, false), (10, false), (5, true), (7, false), (5, false)] {
        agenda.visit(at(visit));
        assert_eq!(is_woken(&agenda), wakes, "for {visit}");
    }
    // It looks at all of them: whatever comes meanwhile wakes it.
    agenda.begin();
    agenda.visit(at(30));
    assert!(is_woken(&agenda));
    agenda.set(at(40));
    agenda.visit(at(35));
    assert!(!is_woken(&agenda), "the visit before is the alarm");
}

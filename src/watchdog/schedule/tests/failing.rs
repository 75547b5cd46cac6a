//! Partitions whose renewals fail.

use super::*;

#[test]
fn a_partition_that_fails_is_probed_by_other_holds_each_time() {
    let (mut schedule, all) = schedule(5 * BATCH as u64);
    let mut now = Instant::now() + LEASE / 3;
    for batch in due(&mut schedule, now) {
        schedule.not_answered(&batch, now, now);
        is_sound(&schedule);
    }
    assert_eq!(schedule.failing(), all.len());
    let mut tried = std::collections::BTreeSet::new();
    for _ in 0..5 {
        now = schedule.set_alarm(now);
        let probes = due(&mut schedule, now);
        assert_eq!(probes.len(), 1, "one batch probes");
        tried.extend(
            probes[0]
                .holds
                .iter()
                .map(|(live, _)| live.hold.id.number()),
        );
        schedule.not_answered(&probes[0], now, now);
        is_sound(&schedule);
    }
    assert_eq!(tried.len(), all.len());

    // The first answer ends the outage for all.
    now = schedule.set_alarm(now);
    let probe = due(&mut schedule, now).remove(0);
    let statuses = vec![HoldStatus::Held; probe.holds.len()];
    assert!(schedule.answered(&probe, now, now, &statuses).is_empty());
    is_sound(&schedule);
    assert!(!schedule.is_failing());
    assert_eq!(count(&due(&mut schedule, now)), 0);
    let soon = now + LEASE / 10;
    assert_eq!(count(&due(&mut schedule, soon)), all.len() - BATCH);
}

#[test]
fn a_partition_whose_holds_have_gone_no_longer_fails() {
    let (mut schedule, all) = schedule(3);
    let now = Instant::now() + LEASE / 3;
    let batch = due(&mut schedule, now).remove(0);
    schedule.remove(&all[0]);
    schedule.not_answered(&batch, now, now);
    is_sound(&schedule);
    assert_eq!(schedule.failing(), 2);
    for live in &all {
        assert!(schedule.is_failing());
        schedule.remove(live);
        is_sound(&schedule);
    }
    assert!(!schedule.is_failing());
}

#[test]
fn a_hold_whose_partition_fails_is_lost_at_its_deadline() {
    let (mut schedule, all) = schedule(1);
    let now = Instant::now() + LEASE / 3;
    let batch = due(&mut schedule, now).remove(0);
    schedule.not_answered(&batch, now, now);
    let lost = round(&mut schedule, all[0].deadline()).lost;
    assert_eq!(lost.len(), 1);
    assert!(!schedule.is_failing());
}

use uuid::Uuid;

use super::*;
use crate::lock::{Hold, HoldId, LockMode};

const LEASE: Duration = Duration::from_secs(30);

fn hold(number: u64) -> Arc<LiveHold> {
    let hold = Hold {
        key: format!("account:{number}").into(),
        mode: LockMode::Reentrant,
        id: HoldId::new(Uuid::nil(), number),
    };
    let lease = Lease::Renewed(LEASE);
    Arc::new(LiveHold::new(hold, lease, None, Instant::now(), LEASE))
}

/// A schedule with this number of holds.
fn schedule(holds: u64) -> (RenewalSchedule, Vec<Arc<LiveHold>>) {
    let mut schedule = RenewalSchedule::default();
    let all: Vec<_> = (0..holds).map(hold).collect();
    for live in &all {
        schedule.enter(live);
    }
    (schedule, all)
}

fn due(schedule: &mut RenewalSchedule, now: Instant) -> Vec<Batch> {
    let due = schedule.due(now, |_| 0, &mut Vec::new());
    is_sound(schedule);
    due
}

fn count(batches: &[Batch]) -> usize {
    batches.iter().map(|batch| batch.holds.len()).sum()
}

/// Checks the invariants between calls.
fn is_sound(schedule: &RenewalSchedule) {
    let new = |entry: &&ScheduledHold| entry.state == RenewalState::New;
    let new = schedule.holds.values().filter(new).count();
    assert_eq!(schedule.queue.len() + new, schedule.holds.len());
    assert_eq!(schedule.probes.len(), schedule.failing.len());
    let mut failed = 0;
    for (serial, entry) in &schedule.holds {
        let is_queued = schedule.queue.contains(&(entry.look, *serial));
        assert_eq!(is_queued, entry.state != RenewalState::New);
        if entry.state == RenewalState::New {
            assert!(schedule.new.contains(serial));
            assert!(schedule.settles.expect("they settle once") <= entry.look);
            continue;
        }
        if let RenewalState::Failed(partition, place) = entry.state {
            assert_eq!(schedule.failing[&partition].waiting[&place], *serial);
            failed += 1;
        }
        if entry.state != RenewalState::Scheduled {
            assert_eq!(entry.look, entry.live.deadline());
        }
    }
    assert_eq!(schedule.failing(), failed);
    for (partition, failing) in &schedule.failing {
        assert!(!failing.waiting.is_empty());
        assert!(schedule.probes.contains(&(failing.probe, *partition)));
    }
}

/// What ends before its first renewal has never stood in the queue, and leaves nothing behind.
#[test]
fn short_holds_leave_nothing_in_the_schedule() {
    let mut schedule = RenewalSchedule::default();
    let long = hold(0);
    schedule.enter(&long);
    for number in 1..10_000 {
        let short = hold(number);
        schedule.enter(&short);
        schedule.remove(&short);
        assert!(schedule.queue.is_empty());
    }
    is_sound(&schedule);
    assert!(schedule.new.len() <= SPARE + 4, "{}", schedule.new.len());
    // The one that lasts is renewed within its third.
    let first = schedule.set_alarm(Instant::now());
    assert!(first <= Instant::now() + LEASE / 3);
    assert_eq!(count(&due(&mut schedule, long.first_look() + LEASE / 3)), 1);
}

#[test]
fn what_is_soon_due_fills_a_batch_and_no_more() {
    let (mut schedule, all) = schedule(20_000);
    let first = schedule.set_alarm(Instant::now());
    assert_eq!(count(&due(&mut schedule, first)), BATCH);
    // They are spread over a third of the lease: within a second of the first, many more follow.
    let mut renewed = BATCH;
    while renewed < all.len() {
        let next = schedule.queue.first().expect("not all").0;
        assert!(next < first + LEASE / 3, "{renewed} of {}", all.len());
        renewed += count(&due(&mut schedule, next));
    }
}

#[test]
fn what_is_due_is_renewed_however_much_it_is() {
    let (mut schedule, all) = schedule(5 * BATCH as u64);
    let end = Instant::now() + LEASE / 3;
    assert_eq!(count(&due(&mut schedule, end)), all.len());
}

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
        tried.extend(probes[0].holds.iter().map(|(live, _)| live.serial));
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
    let mut lost = Vec::new();
    let deadline = all[0].deadline();
    schedule.due(deadline, |_| 0, &mut lost);
    is_sound(&schedule);
    assert_eq!(lost.len(), 1);
    assert!(!schedule.is_failing());
}

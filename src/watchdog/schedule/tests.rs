use uuid::Uuid;

use super::*;
use crate::lock::{Hold, HoldId, Lease, LockMode};

const LEASE: Duration = Duration::from_secs(30);

fn hold(number: u64) -> Arc<LiveHold> {
    lasting(number, LEASE)
}

fn lasting(number: u64, lease: Duration) -> Arc<LiveHold> {
    let hold = Hold {
        key: format!("account:{number}").into(),
        mode: LockMode::Reentrant,
        id: HoldId::new(Uuid::nil(), number),
    };
    let renewed = Lease::Renewed(lease);
    Arc::new(LiveHold::new(hold, renewed, None, Instant::now(), lease))
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

fn due(schedule: &mut RenewalSchedule, now: Instant) -> Vec<Arc<Batch>> {
    let due = schedule.due(now, |_| 0, &mut Vec::new());
    is_sound(schedule);
    due.into_iter().flatten().collect()
}

fn count(batches: &[Arc<Batch>]) -> usize {
    batches.iter().map(|batch| batch.holds.len()).sum()
}

/// Checks the invariants between calls.
fn is_sound(schedule: &RenewalSchedule) {
    assert_eq!(schedule.probes.len(), schedule.failing.len());
    let all = schedule.all();
    let asked: HashSet<_> = schedule.asked.holds().map(Arc::as_ptr).collect();
    let failing = schedule.failing.values();
    let waiting: HashSet<_> = failing
        .flat_map(|part| part.waiting.iter().map(Arc::as_ptr))
        .collect();
    let (mut new, mut queued, mut failed) = (0, 0, 0);
    for live in &all {
        let (state, look) = live.renewal();
        match state {
            RenewalState::Absent => unreachable!("it has left"),
            RenewalState::New(_) => {
                assert!(schedule.new.settles().expect("they settle once") <= look);
                new += 1;
            }
            RenewalState::Asked => {
                assert!(asked.contains(&Arc::as_ptr(live)));
                assert!(schedule.asked.until() <= Some(live.deadline().into()));
            }
            RenewalState::Scheduled => queued += 1,
            RenewalState::Failed(partition) => {
                assert!(schedule.failing.contains_key(&partition));
                assert!(waiting.contains(&Arc::as_ptr(live)));
                assert_eq!(look, live.deadline().into());
                queued += 1;
                failed += 1;
            }
        }
    }
    assert_eq!(schedule.new.len(), new);
    assert_eq!(schedule.queued, queued);
    assert!(schedule.queue.len() <= 2 * queued + SPARE + 1);
    for (place, live) in schedule.new.iter().enumerate() {
        assert_eq!(live.renewal().0, RenewalState::New(place as u32));
    }
    assert_eq!(schedule.failing(), failed);
    for (partition, failing) in &schedule.failing {
        assert!(failing.holds > 0);
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
        assert!(schedule.queue.len() == 0);
        assert_eq!(schedule.new.len(), 1);
    }
    is_sound(&schedule);
    // The one that lasts is renewed within its third.
    let first = schedule.set_alarm(Instant::now());
    assert!(first <= Instant::now() + LEASE / 3);
    assert_eq!(count(&due(&mut schedule, long.renewal().1.into())), 1);
}

#[test]
fn what_is_soon_due_fills_the_batches_of_a_round_and_no_more() {
    let (mut schedule, all) = schedule(20_000);
    let mut now = schedule.set_alarm(Instant::now());
    let begun = now;
    let mut renewed = 0;
    // They are spread over three quarters of a third of the lease, and each round takes those of a hundredth.
    let a_round = all.len() / 25 + 2 * BATCH;
    while renewed < all.len() {
        assert!(now < begun + LEASE / 3, "{renewed} of {}", all.len());
        let batches = due(&mut schedule, now);
        let (last, full) = batches.split_last().expect("an alarm has a reason");
        assert!(full.iter().all(|batch| batch.holds.len() == BATCH));
        assert!(!last.holds.is_empty());
        assert!(count(&batches) <= a_round, "{} in a round", count(&batches));
        renewed += count(&batches);
        now = schedule.set_alarm(now);
    }
}

/// A hold that has left is passed over in the queue, and there are not many of them.
#[test]
fn long_holds_that_end_leave_little_in_the_queue() {
    let (mut schedule, all) = schedule(10_000);
    schedule.settle();
    is_sound(&schedule);
    for live in &all[1..] {
        schedule.remove(live);
    }
    is_sound(&schedule);
    assert!(
        schedule.queue.len() <= SPARE + 3,
        "{}",
        schedule.queue.len()
    );
    let look = all[0].renewal().1;
    assert_eq!(count(&due(&mut schedule, look.into())), 1);
}

/// A hold whose renewal is never answered is lost at its deadline, and no earlier.
#[test]
fn a_hold_that_is_asked_for_is_lost_at_its_deadline() {
    let (mut schedule, all) = schedule(2);
    let now = Instant::now() + LEASE / 3;
    let batch = due(&mut schedule, now).remove(0);
    assert_eq!(batch.holds.len(), 2);
    let first = all[0].deadline().min(all[1].deadline());
    let last = all[0].deadline().max(all[1].deadline());
    assert_eq!(schedule.set_alarm(now), first);
    let mut lost = Vec::new();
    for deadline in [first, last] {
        schedule.due(deadline - Duration::from_nanos(1), |_| 0, &mut lost);
        schedule.due(deadline, |_| 0, &mut lost);
        is_sound(&schedule);
    }
    assert_eq!(lost.len(), 2);
    assert_eq!(schedule.all().len(), 0);
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

/// The only share that was left had a longest hold, which was over at the look. Another one has none.
#[test]
fn a_hold_whose_renewals_had_ended_is_renewed_when_its_limit_is_extended() {
    let (mut schedule, all) = schedule(1);
    let live = &all[0];
    live.set_limit((Instant::now() + Duration::from_secs(1)).into());
    let now = Instant::now() + LEASE / 3;
    assert_eq!(count(&due(&mut schedule, now)), 0);
    assert_eq!(schedule.set_alarm(now), live.deadline());
    live.set_limit(Moment::NEVER);
    let look = live.take_extended().expect("its renewals had ended");
    assert!(schedule.look_earlier(live, look));
    assert_eq!(count(&due(&mut schedule, now)), 1);
}

/// Another request shares a hold before the watchdog has it: its guard has no longest hold.
#[test]
fn a_hold_whose_limit_is_extended_before_it_enters_is_renewed() {
    let cut = hold(0);
    let lease = Duration::from_secs(1);
    let (begun, renewed) = (Instant::now(), Lease::Renewed(LEASE));
    let live = LiveHold::new(cut.hold.clone(), renewed, None, begun, lease);
    let live = Arc::new(live);
    live.set_limit((begun + lease).into());
    live.set_limit(Moment::NEVER);
    let mut schedule = RenewalSchedule::default();
    if let Some(look) = live.take_extended() {
        schedule.look_earlier(&live, look);
    }
    schedule.enter(&live);
    let look = schedule.set_alarm(begun);
    assert!(look < live.deadline());
    assert_eq!(count(&due(&mut schedule, look)), 1);
}

#[test]
fn looks_come_in_the_order_of_their_times() {
    let mut random = fastrand::Rng::with_seed(1);
    let now = Instant::now();
    let (mut looks, mut expected) = (LookQueue::default(), Vec::new());
    for number in 0..2_000 {
        let live = lasting(number, Duration::from_secs(random.u64(10..30)));
        let at = Moment::from(now + Duration::from_millis(random.u64(..20_000)));
        looks.push(Look { at, live });
        expected.push(at);
        if random.bool() {
            expected.sort_unstable();
            assert_eq!(looks.first().map(|look| look.at), Some(expected[0]));
            assert_eq!(looks.pop().map(|look| look.at), Some(expected.remove(0)));
        }
        assert_eq!(looks.len(), expected.len());
    }
    expected.sort_unstable();
    for at in expected {
        assert_eq!(looks.pop().map(|look| look.at), Some(at));
    }
    assert!(looks.pop().is_none());
}

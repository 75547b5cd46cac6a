mod failing;

use std::collections::HashSet;

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
    let round = round(schedule, now);
    round
        .batches
        .into_values()
        .flatten()
        .chain(round.probes)
        .collect()
}

fn round(schedule: &mut RenewalSchedule, now: Instant) -> Round {
    let mut round = Round::default();
    while !schedule.due(now, |_| 0, &mut round) {}
    is_sound(schedule);
    round
}

fn count(batches: &[Arc<Batch>]) -> usize {
    batches.iter().map(|batch| batch.holds.len()).sum()
}

/// Checks the invariants between calls.
fn is_sound(schedule: &RenewalSchedule) {
    let all = schedule.all();
    let asked: HashSet<_> = schedule.asked.holds().map(Arc::as_ptr).collect();
    let failing = schedule.failing.values();
    let waiting: HashSet<_> = failing
        .flat_map(|part| part.waiting.iter().map(Arc::as_ptr))
        .collect();
    let (mut new, mut queued, mut failed) = (0, 0, 0);
    for live in &all {
        let (state, at) = live.renewal();
        let look = || schedule.queue.has(at, live);
        match state {
            RenewalState::Absent => unreachable!("it has left"),
            RenewalState::New(slice, place) => {
                assert!(schedule.new.settles().expect("they settle once") <= at);
                let there = schedule.new.at(slice, place).expect("it is there");
                assert!(Arc::ptr_eq(there, live));
                new += 1;
            }
            RenewalState::Asked => {
                assert!(asked.contains(&Arc::as_ptr(live)));
            }
            RenewalState::Scheduled => {
                assert!(look());
                queued += 1;
            }
            RenewalState::Failed(partition) => {
                assert!(schedule.failing.contains_key(&partition));
                assert!(waiting.contains(&Arc::as_ptr(live)));
                assert_eq!(at, live.deadline().into());
                assert!(look());
                queued += 1;
                failed += usize::from(schedule.is_down(partition));
            }
        }
    }
    assert_eq!(schedule.new.iter().count(), new);
    assert_eq!(schedule.queue.holds().count(), queued);
    assert_eq!(schedule.failing(), failed);
    for (partition, failing) in &schedule.failing {
        assert!(failing.holds > 0);
        let probe = failing.probe.map(|probe| (probe, *partition));
        assert!(probe.is_none_or(|probe| schedule.probes.contains(&probe)));
    }
    let probes = schedule.failing.values().filter_map(|part| part.probe);
    assert_eq!(schedule.probes.len(), probes.count());
}

/// The number of holds that a call moves or removes.
fn moved<R>(all: &[Arc<LiveHold>], call: impl FnOnce() -> R) -> (usize, R) {
    let states = || all.iter().map(|live| live.renewal()).collect::<Vec<_>>();
    let before = states();
    let result = call();
    let after = states();
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b);
    (changed.count(), result)
}

/// Every acquire and release waits while a call has the mutex.
#[test]
fn no_call_moves_more_holds_than_a_batch() {
    let (mut schedule, all) = schedule(20 * BATCH as u64);
    let calls_until_complete = |schedule: &mut RenewalSchedule, now: Instant| {
        let mut whole = Round::default();
        for calls in 1.. {
            let (count, is_complete) = moved(&all, || schedule.due(now, |_| 0, &mut whole));
            assert!(count <= BATCH, "{count} holds in a call");
            is_sound(schedule);
            if is_complete {
                return (calls, whole);
            }
        }
        unreachable!("it ends")
    };
    // All first renewals are due at once, because the process had stopped.
    let now = Instant::now() + LEASE / 3;
    let (calls, asked) = calls_until_complete(&mut schedule, now);
    assert!(calls > 2 * all.len() / BATCH, "{calls} calls");
    let asked: Vec<_> = asked.batches.into_values().flatten().collect();
    assert_eq!(count(&asked), all.len());
    // The store does not answer, and then it does.
    for batch in &asked {
        schedule.not_answered(batch, now, now);
    }
    let now = schedule.set_alarm(now);
    let (_, round) = calls_until_complete(&mut schedule, now);
    let [probe] = &round.probes[..] else {
        panic!("one batch probes");
    };
    let held = vec![HoldStatus::Held; BATCH];
    let (answered, _) = moved(&all, || schedule.answered(probe, now, now, &held));
    assert_eq!(answered, BATCH);
    let (calls, _) = calls_until_complete(&mut schedule, now);
    assert!(calls >= all.len() / BATCH - 1, "{calls} calls");
    // All are lost at their deadlines.
    let end = now + 2 * LEASE;
    let (_, round) = calls_until_complete(&mut schedule, end);
    assert_eq!(round.lost.len(), all.len());
    is_sound(&schedule);
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
        assert!(schedule.queue.first().is_none());
        assert_eq!(schedule.new.iter().count(), 1);
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

#[test]
fn long_holds_that_end_leave_nothing_in_the_queue() {
    let (mut schedule, all) = schedule(1000);
    let now = Instant::now() + LEASE / 3;
    for batch in due(&mut schedule, now) {
        let held = vec![HoldStatus::Held; batch.holds.len()];
        schedule.answered(&batch, now, now, &held);
    }
    assert_eq!(schedule.queue.holds().count(), all.len());
    for live in &all[1..] {
        schedule.remove(live);
    }
    is_sound(&schedule);
    assert_eq!(schedule.queue.holds().count(), 1);
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
    for deadline in [first, last] {
        let before = round(&mut schedule, deadline - Duration::from_nanos(1));
        assert!(before.lost.is_empty());
        assert_eq!(round(&mut schedule, deadline).lost.len(), 1);
    }
    assert_eq!(schedule.all().len(), 0);
}

#[test]
fn what_is_due_is_renewed_however_much_it_is() {
    let (mut schedule, all) = schedule(5 * BATCH as u64);
    let end = Instant::now() + LEASE / 3;
    assert_eq!(count(&due(&mut schedule, end)), all.len());
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

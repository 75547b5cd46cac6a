//! Who is visited and woken, and who is not.

use super::*;
use crate::hold::Due;

/// Renewals under way stand at their deadlines. Near these, the visits that are due come nevertheless, and an end is found.
#[tokio::test(start_paused = true)]
async fn a_round_of_visits_ends() {
    let mut world = World::new(Instant::now());
    let mut wheel = wheel::Wheel::default();
    let holds: Vec<_> = (0..1000).map(|_| world.hold(LockMode::Write)).collect();
    let deadline = holds[0].deadline();
    let now = deadline - Duration::from_millis(300);
    for (n, held) in holds.iter().enumerate() {
        match n % 100 {
            50 => wheel.place(held, now),
            _ => {
                assert!(matches!(held.due(world.now), Due::Renew));
                wheel.place(held, deadline);
            }
        }
    }
    let mut visited = Vec::new();
    loop {
        let due = wheel.take(now, 64);
        for held in &due {
            match held.due(now) {
                Due::Renew => wheel.place(held, held.deadline()),
                Due::Wait(until) => wheel.place(held, until),
                _ => unreachable!("it is held"),
            }
        }
        visited.extend(due.iter().map(|held| held.hold.id.number()));
        if due.len() < 64 {
            break;
        }
        assert!(visited.len() < 10_000, "it does not end");
    }
    assert_eq!(visited.len(), 10, "each that is due comes once");
    assert_eq!(wheel.first(), Some(deadline));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_the_store_in_a_fair_queue_are_woken_by_the_store_alone() {
    let mut world = World::new(Instant::now());
    for n in 0..3 {
        world.apply(Event::Enters(n, LockMode::Fair));
    }
    world.apply(Event::Refused(0));
    let task = |n: u64| {
        let mut tasks = world.tasks.iter();
        &tasks
            .find(|running| running.task.ticket == n)
            .expect("it waits")
            .task
    };
    let woken = |event: &dyn Fn(&mut KeyAt<'_>)| {
        let event = world.table.event(&world.key, world.now, event);
        let others = event.expect("it is in use").1.others;
        let woken = others.map_or_else(Default::default, |others| others.wake);
        let tickets = woken.iter().filter_map(|work| {
            let mut tasks = world.tasks.iter().map(|running| &running.task);
            tasks.find(|task| Arc::ptr_eq(&task.work, work))
        });
        tickets.map(|task| task.ticket).collect::<Vec<_>>()
    };
    let asks = |n: u64| {
        woken(&|key| {
            let next = key.next(task(n));
            assert!(
                matches!(next, Next::Ask { ticket, .. } if ticket == n),
                "{next:?}"
            );
        });
    };
    let is_refused = |n: u64| woken(&|key| key.line_refused(task(n), None));
    asks(0);
    asks(1);
    assert_eq!(is_refused(1), [2], "it may ask now");
    asks(2);
    assert!(is_refused(2).is_empty());
    assert!(is_refused(1).is_empty(), "it had its place");
    assert_eq!(
        woken(&|key| key.left(Side::Fair, 1)),
        [1],
        "its own task ends"
    );
}

/// So a round looks at the slots that are due, and at few holds beside those.
#[tokio::test(start_paused = true)]
async fn the_visits_of_half_a_second_share_a_slot() {
    let mut world = World::new(Instant::now());
    let mut wheel = wheel::Wheel::default();
    let slots = [0, 499, 500, 1200].map(|after| {
        let held = world.hold(LockMode::Write);
        wheel.place(&held, world.now + Duration::from_millis(after));
        held.place.load(std::sync::atomic::Ordering::Relaxed) % 64
    });
    assert_eq!(slots, [0, 0, 1, 2]);
}

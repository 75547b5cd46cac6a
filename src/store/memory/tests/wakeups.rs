//! Contract 8: an attempt that may be granted is woken, and listeners leave nothing.

use super::*;
use crate::store::WAITER_LIVENESS;

/// A waiter that was refused and listens.
fn waiting(store: &MemoryStore, waiter: &Attempt) -> Wakeups {
    let refused = matches!(outcome(store, waiter), Outcome::Refused { .. });
    assert!(refused, "{waiter:?} should wait");
    let mut wakeups = subscribe(store, waiter);
    assert!(!woken(&mut wakeups));
    wakeups
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_hold_wakes_its_waiters() {
    for held in MODES {
        for wanted in MODES {
            let concerned = match held {
                LockMode::Reentrant => wanted == held,
                LockMode::Fair => wanted.family() == held.family(),
                LockMode::Read => wanted == LockMode::Write,
                LockMode::Write => wanted.family() == held.family(),
                LockMode::Permit(_) => wanted == held,
            };
            if !concerned {
                continue;
            }
            for withdrawn in [false, true] {
                let store = MemoryStore::new();
                let (holder, waiter) = (attempt(held, 1), attempt(wanted, 2));
                granted(&store, &holder);
                let mut wakeups = waiting(&store, &waiter);
                match withdrawn {
                    true => withdraw(&store, &holder, true),
                    false => released(&store, &holder),
                }
                assert!(woken(&mut wakeups), "{held:?} before {wanted:?}");
                granted(&store, &waiter);
                assert!(!woken(&mut wakeups), "once");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_keys_wake_no_waiter() {
    let store = MemoryStore::new();
    let other = |n: u64| Attempt {
        hold: Hold {
            key: LockKey::new(format!("other:{n}")),
            ..attempt(LockMode::Reentrant, 1).hold
        },
        ..attempt(LockMode::Reentrant, 1)
    };
    granted(&store, &attempt(LockMode::Reentrant, 1));
    let mut wakeups = waiting(&store, &attempt(LockMode::Reentrant, 2));
    for n in 0..1_000 {
        granted(&store, &other(n));
        released(&store, &other(n));
    }
    assert!(!woken(&mut wakeups));
}

#[tokio::test(start_paused = true)]
async fn in_a_fair_queue_the_next_in_line_alone_is_woken() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Fair, 0));
    let mut first = waiting(&store, &attempt(LockMode::Fair, 1));
    let mut second = waiting(&store, &attempt(LockMode::Fair, 2));
    let mut third = waiting(&store, &attempt(LockMode::Fair, 3));
    released(&store, &attempt(LockMode::Fair, 0));
    assert!(woken(&mut first) && !woken(&mut second) && !woken(&mut third));
    // It has not used the wake-up: the next one gets it.
    withdraw(&store, &attempt(LockMode::Fair, 1), false);
    assert!(woken(&mut second) && !woken(&mut third));
    granted(&store, &attempt(LockMode::Fair, 2));
    released(&store, &attempt(LockMode::Fair, 2));
    assert!(woken(&mut third));
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_first_in_line_that_is_alive() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Fair, 0));
    let mut dead = waiting(&store, &attempt(LockMode::Fair, 1));
    advance(WAITER_LIVENESS).await;
    let mut alive = waiting(&store, &attempt(LockMode::Fair, 2));
    released(&store, &attempt(LockMode::Fair, 0));
    assert!(!woken(&mut dead) && woken(&mut alive));
}

#[tokio::test(start_paused = true)]
async fn only_the_last_reader_wakes_the_writer() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Read, 1));
    granted(&store, &attempt(LockMode::Read, 2));
    let mut writer = waiting(&store, &attempt(LockMode::Write, 3));
    released(&store, &attempt(LockMode::Read, 1));
    assert!(!woken(&mut writer));
    released(&store, &attempt(LockMode::Read, 2));
    assert!(woken(&mut writer));
}

#[tokio::test(start_paused = true)]
async fn the_last_waiting_writer_that_gives_up_wakes_the_readers_it_held_back() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Read, 1));
    let _writer = waiting(&store, &attempt(LockMode::Write, 2));
    let _other = waiting(&store, &attempt(LockMode::Write, 3));
    let mut reader = waiting(&store, &attempt(LockMode::Read, 4));
    withdraw(&store, &attempt(LockMode::Write, 2), false);
    assert!(!woken(&mut reader));
    withdraw(&store, &attempt(LockMode::Write, 3), false);
    assert!(woken(&mut reader));
    granted(&store, &attempt(LockMode::Read, 4));
}

#[tokio::test(start_paused = true)]
async fn the_last_reader_that_forgoes_its_turn_wakes_the_writers() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Write, 1));
    let _reader = waiting(&store, &attempt(LockMode::Read, 2));
    let _other = waiting(&store, &attempt(LockMode::Read, 3));
    released(&store, &attempt(LockMode::Write, 1));
    let mut writer = waiting(&store, &attempt(LockMode::Write, 4));
    withdraw(&store, &attempt(LockMode::Read, 2), false);
    assert!(!woken(&mut writer));
    withdraw(&store, &attempt(LockMode::Read, 3), false);
    assert!(woken(&mut writer));
    granted(&store, &attempt(LockMode::Write, 4));
}

#[tokio::test(start_paused = true)]
async fn listening_ends_with_the_wakeups() {
    for mode in MODES {
        let store = MemoryStore::new();
        let first = subscribe(&store, &attempt(mode, 1));
        let second = subscribe(&store, &attempt(mode, 1));
        drop(first);
        assert!(!store.is_empty());
        drop(second);
        assert!(store.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_in_another_task_wakes_a_sleeping_waiter() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Write, 1));
    let mut wakeups = waiting(&store, &attempt(LockMode::Read, 2));
    let sleeper = tokio::spawn(async move { wakeups.wait().await });
    tokio::task::yield_now().await;
    released(&store, &attempt(LockMode::Write, 1));
    assert!(sleeper.await.unwrap(), "it was woken");
}

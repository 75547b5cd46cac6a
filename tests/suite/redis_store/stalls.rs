//! The time of those who wait: it stands still while the server does, and does not step back with its clock.

use tower_distributed_lock::LockMode;

use super::*;

const BUSY: &str = "tower_lock_busy:{k}";

/// Modes whose waiters are granted in their order.
const ORDERED: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Write,
    LockMode::permits(1),
];

/// Changes the data as if `ms` had passed since the last question; a negative number: as if the server's clock had stepped back.
async fn pass(server: &RedisServer, ms: i64) {
    let words = unusual(server, BUSY).await;
    for place in [ASKED, LATE] {
        let word = words[place].parse::<i64>().unwrap() - ms;
        change_unusual(server, BUSY, place, &word.to_string()).await;
    }
}

#[tokio::test]
async fn a_server_that_stood_still_finds_the_waiters_in_their_order() {
    for mode in ORDERED {
        let (server, store) = server_and_store().await;
        let holder = lasting(attempt("k", mode), Duration::from_secs(60));
        assert!(asks(&store, &holder).await);
        let waiters = [(); 4].map(|()| patient("k", mode));
        for waiter in &waiters {
            assert!(!asks(&store, waiter).await);
        }
        for stall in [2_500, 7_000] {
            pass(&server, stall).await;
            // The first question after it is of the last in line, or the first script is a release.
            for waiter in waiters.iter().rev() {
                assert!(!asks(&store, waiter).await, "{mode:?}");
            }
            pass(&server, stall).await;
            assert!(releases(&store, &holder).await);
            assert!(!asks(&store, &waiters[3]).await && !asks(&store, &waiters[1]).await);
            assert!(asks(&store, &waiters[0]).await && releases(&store, &waiters[0]).await);
            assert!(!asks(&store, &waiters[2]).await, "{mode:?}");
            assert!(asks(&store, &waiters[1]).await && releases(&store, &waiters[1]).await);
            assert!(asks(&store, &waiters[2]).await && releases(&store, &waiters[2]).await);
            assert!(asks(&store, &waiters[3]).await && releases(&store, &waiters[3]).await);
            assert!(!server.dump().await.contains_key(BUSY), "{mode:?}");
            assert!(asks(&store, &holder).await);
            for waiter in &waiters {
                assert!(!asks(&store, waiter).await);
            }
        }
    }
}

#[tokio::test]
async fn a_dead_waiter_lives_no_longer_when_the_clock_steps_back() {
    for mode in ORDERED {
        let (server, store) = server_and_store().await;
        let (holder, dead, next) = (attempt("k", mode), patient("k", mode), patient("k", mode));
        assert!(asks(&store, &holder).await);
        assert!(!asks(&store, &dead).await && !asks(&store, &next).await);
        assert!(releases(&store, &holder).await);
        pass(&server, -30_000).await;
        assert!(!asks(&store, &next).await);
        // It asks every second.
        let mut granted = false;
        for _ in 0..3 {
            pass(&server, 1_100).await;
            granted = granted || asks(&store, &next).await;
        }
        assert!(granted, "{mode:?}: a dead waiter holds it back");
    }
}

/// Only questions of waiters move the time of those who wait.
#[tokio::test]
async fn a_dead_waiter_delays_those_without_patience_by_seconds_when_the_clock_steps_back() {
    let modes = [
        (LockMode::Fair, LockMode::Fair),
        (LockMode::Write, LockMode::Read),
    ];
    for (mode, other) in modes {
        let (server, store) = server_and_store().await;
        let (holder, dead, next) = (attempt("k", mode), patient("k", mode), attempt("k", other));
        assert!(asks(&store, &holder).await && !asks(&store, &dead).await);
        assert!(releases(&store, &holder).await);
        pass(&server, -30_000).await;
        assert!(!asks(&store, &next).await, "{mode:?}");
        pass(&server, 9_000).await;
        assert!(asks(&store, &next).await, "{mode:?}");
    }
}

/// If no other waiter asks, it delays the next one by its rest of life, at the silence's end at the latest.
#[tokio::test]
async fn a_dead_waiter_of_a_silent_line_delays_the_next_by_seconds() {
    for mode in ORDERED {
        let (server, store) = server_and_store().await;
        let (holder, dead, next) = (attempt("k", mode), patient("k", mode), patient("k", mode));
        assert!(asks(&store, &holder).await && !asks(&store, &dead).await);
        assert!(releases(&store, &holder).await);
        pass(&server, 7_000).await;
        let rest = retry_after(&store, &next).await;
        assert!(rest <= Duration::from_secs(2), "{mode:?}: {rest:?}");
        pass(&server, 1_100).await;
        assert!(!asks(&store, &next).await, "{mode:?}");
        pass(&server, 1_100).await;
        assert!(asks(&store, &next).await, "{mode:?}");
    }
}

/// Such a silence is no stall: the processes have gone.
#[tokio::test]
async fn a_long_silence_ends_all_places() {
    for mode in ORDERED {
        let (server, store) = server_and_store().await;
        let (holder, dead, next) = (attempt("k", mode), patient("k", mode), patient("k", mode));
        assert!(asks(&store, &holder).await && !asks(&store, &dead).await);
        assert!(releases(&store, &holder).await);
        pass(&server, 9_000).await;
        assert!(asks(&store, &next).await, "{mode:?}");
    }
}

/// The keys of waiters may end a moment after the silence: a question in between must prolong them.
#[tokio::test]
async fn who_asks_at_the_end_of_a_silence_still_waits_afterwards() {
    let modes = [
        (patient("k", LockMode::Reentrant), "line"),
        (patient("k", LockMode::Write), "line"),
        (patient("k", LockMode::permits(1)), "line"),
        (patient("k", LockMode::Reentrant), "writers"),
        (patient("k", LockMode::Write).in_line(false), "writers"),
        (patient("k", LockMode::Fair), "alive"),
        (patient("k", LockMode::Read), "readers"),
    ];
    for (waiter, kind) in modes {
        let (server, store) = server_and_store().await;
        let mode = match waiter.hold.mode {
            LockMode::Read => LockMode::Write,
            mode => mode,
        };
        assert!(asks(&store, &attempt("k", mode)).await && !asks(&store, &waiter).await);
        pass(&server, 9_000).await;
        let set = format!("tower_lock_{kind}:{{k}}");
        assert!(server.ask::<bool>(&["PEXPIRE", &set, "900"]).await);
        assert!(!asks(&store, &waiter).await);
        let left = server.ask::<i64>(&["PTTL", &set]).await;
        assert!(left > 900, "{mode:?}: {kind} ends in {left} ms");
    }
}

//! The turn of those that wait outside the line, such as clients of Redisson.

use std::time::Duration;

use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::LockStore;

use super::*;

/// Modes with a line, and the channel on which Redisson waits.
const CHANNELS: [(LockMode, &str); 2] = [
    (LockMode::Reentrant, "redisson_lock__channel:{n}"),
    (LockMode::Write, "redisson_rwlock:{n}"),
];

const BUSY: &str = "tower_lock_busy:{n}";

/// An attempt that waits in line.
fn in_line(mode: LockMode) -> Attempt {
    patient("n", mode).in_line(true)
}

/// Whether the release begins the turn of those outside the line.
async fn gives_a_turn(server: &RedisServer, store: &RedisStore, mode: LockMode) -> bool {
    let (holder, waiter) = (attempt("n", mode), in_line(mode));
    assert!(asks(store, &holder).await);
    assert!(!asks(store, &waiter).await);
    let monitor = server.monitor().await;
    assert!(releases(store, &holder).await);
    let lines = monitor.lines().await;
    store.withdraw(&waiter, false).await.expect("it waited");
    let turn = |line: &String| {
        let words = line.split(&format!(r#""SET" "{BUSY}" ""#)).nth(1)?;
        Some(words.split_whitespace().nth(TURN)? == "1")
    };
    lines.iter().filter_map(turn).any(|is_theirs| is_theirs)
}

#[tokio::test]
async fn a_release_that_wakes_redisson_gives_it_the_next_turn() {
    for (mode, channel) in CHANNELS {
        let (server, store) = server_and_store().await;
        assert!(!gives_a_turn(&server, &store, mode).await, "{mode:?}");
        let client = redis::Client::open(server.url()).expect("valid");
        let mut redisson = client.get_async_pubsub().await.expect("it is there");
        redisson.subscribe(channel).await.expect("allowed");
        assert!(gives_a_turn(&server, &store, mode).await, "{mode:?}");
    }
}

/// The next one to wait must prolong the key that says so, even within the turn: otherwise the key ends before the wait.
#[tokio::test]
async fn a_turn_after_the_last_waiter_does_not_hide_the_next_one() {
    for (mode, channel) in CHANNELS {
        let (server, store) = server_and_store().await;
        let client = redis::Client::open(server.url()).expect("valid");
        let mut redisson = client.get_async_pubsub().await.expect("it is there");
        redisson.subscribe(channel).await.expect("allowed");
        let (holder, gone) = (attempt("n", mode), in_line(mode));
        assert!(asks(&store, &holder).await && !asks(&store, &gone).await);
        let waits = ["DEL", "tower_lock_line:{n}", "tower_lock_writers:{n}"];
        assert_eq!(server.ask::<u64>(&waits).await, 2);
        let monitor = server.monitor().await;
        assert!(releases(&store, &holder).await);
        let lines = monitor.lines().await;
        let of_busy = |line: &&String| line.contains(&format!(r#""{BUSY}""#));
        let last = lines.iter().rev().find(of_busy).expect("it has a turn");
        assert!(last.contains(&format!(r#""SET" "{BUSY}" "0 "#)), "{last}");
    }
}

#[tokio::test]
async fn the_line_is_refused_during_the_turn_of_the_others_which_ends_when_one_has_taken_the_key() {
    for (mode, _) in CHANNELS {
        let (server, store) = server_and_store().await;
        let (holder, first, outside) = (attempt("n", mode), in_line(mode), attempt("n", mode));
        assert!(asks(&store, &holder).await);
        assert!(!asks(&store, &first).await);
        assert!(releases(&store, &holder).await);
        // Longer than any, so that it does not end by itself.
        let asked: u64 = unusual(&server, BUSY).await[ASKED].parse().unwrap();
        change_unusual(&server, BUSY, TURN, "1").await;
        change_unusual(&server, BUSY, ENDS, &(asked + 3_600_000).to_string()).await;
        let rest = retry_after(&store, &first).await;
        assert!(rest > Duration::from_secs(60), "{mode:?}: {rest:?}");
        assert!(asks(&store, &outside).await, "{mode:?}: it has no place");
        assert!(!asks(&store, &first).await);
        assert_ne!(
            unusual(&server, BUSY).await[TURN],
            "1",
            "{mode:?}: it goes on"
        );
        assert!(releases(&store, &outside).await);
        assert!(asks(&store, &first).await, "{mode:?}: first in line");
        assert!(releases(&store, &first).await);
    }
}

/// Its clock stands still in the silence after the death of the last in line.
#[tokio::test]
async fn a_turn_of_the_line_is_over_after_a_silence() {
    for (mode, _) in CHANNELS {
        let (_server, store) = server_and_store().await;
        let [first, second, last] = [(); 3].map(|()| attempt("n", mode));
        assert!(asks(&store, &first).await && !asks(&store, &in_line(mode)).await);
        assert!(releases(&store, &first).await && asks(&store, &second).await);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(releases(&store, &second).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(asks(&store, &last).await, "{mode:?}: the line had its turn");
    }
}

/// The clock has stepped back since the place of the first was made.
#[tokio::test]
async fn a_new_place_is_behind_all_others_whatever_the_clock_says() {
    for (mode, _) in CHANNELS {
        let (server, store) = server_and_store().await;
        let (holder, first, second) = (attempt("n", mode), in_line(mode), in_line(mode));
        assert!(asks(&store, &holder).await && !asks(&store, &first).await);
        let line = "tower_lock_line:{n}";
        let places: Vec<String> = server.ask(&["ZRANGE", line, "0", "-1"]).await;
        let ahead = ["ZINCRBY", line, "500000", &places[0]];
        let _: f64 = server.ask(&ahead).await;
        assert!(!asks(&store, &second).await);
        let now: Vec<String> = server.ask(&["ZRANGE", line, "0", "-1"]).await;
        assert_eq!(now[0], places[0], "{mode:?}");
        assert_eq!(now.len(), 2);
    }
}

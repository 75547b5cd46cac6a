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

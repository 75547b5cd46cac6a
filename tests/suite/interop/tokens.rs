//! Fencing tokens, issued by both languages from one counter.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use redis::AsyncTypedCommands;
use tower_distributed_lock::Owner;

use super::redisson::Version;
use super::{Kind, LEASE, Meeting, Party, aux};

/// Takes the lock, records its token while it is held, and releases it.
async fn note(party: &Party, name: &str, tokens: &Mutex<Vec<u64>>) {
    let noted = |token| tokens.lock().expect("no thread panics here").push(token);
    match party {
        Party::Java(thread) => {
            noted(thread.lock_and_get_token(name).await.unwrap());
            thread.unlock(Kind::Fenced, name).await.unwrap();
        }
        Party::Rust(..) => {
            let held = party.lock(Kind::Fenced, name, LEASE).await;
            noted(held.token().expect("a fenced hold has a token").value());
            held.release().await;
        }
    }
}

fn assert_rising(tokens: &Mutex<Vec<u64>>) {
    let tokens = tokens.lock().expect("no thread panics here");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test]
async fn tokens_rise_from_holder_to_holder() {
    let meeting = Meeting::open().await;
    let [java, other] = [(); 2].map(|()| meeting.java(Version::V4_7));
    let [rust, another] = [(); 2].map(|()| meeting.rust());
    // The first one finds no counter.
    for first in [&java, &rust] {
        for name in meeting.names() {
            let tokens = Mutex::default();
            for holder in [first, &rust, &java, &other, &rust, &another, &java, &rust] {
                note(holder, &name, &tokens).await;
            }
            assert_rising(&tokens);
            meeting.nothing_is_left([&name]).await;
        }
    }
}

/// The server's clock, which our tokens follow, may have been set back.
#[tokio::test]
async fn tokens_rise_from_a_counter_that_is_ahead_of_the_clock() {
    const IN_2100: u64 = 4_102_444_800_000_000;
    let meeting = Meeting::open().await;
    let (java, rust) = (meeting.java(Version::V4_7), meeting.rust());
    for name in meeting.names() {
        let mut connection = meeting.redis().connection().await;
        let key = aux("redisson_lock_token", &name);
        connection.set(key, IN_2100).await.unwrap();
        let tokens = Mutex::new(vec![IN_2100]);
        for holder in [&rust, &java, &rust] {
            note(holder, &name, &tokens).await;
        }
        assert_rising(&tokens);
    }
}

/// Waiters of one client of ours pass the hold on among themselves, with tokens that were reserved for that.
#[tokio::test]
async fn tokens_rise_under_contention() {
    const ROUNDS: usize = 20;
    let meeting = Meeting::open().await;
    let name = meeting.name();
    let Party::Rust(client, _) = meeting.rust() else {
        unreachable!("it is ours")
    };
    let ours = (0..3).map(|_| Party::Rust(client.clone(), Owner::new()));
    let theirs = (0..3).map(|_| meeting.java(Version::V4_7));
    let tokens = Arc::new(Mutex::default());
    let all = ours.chain(theirs).map(async |party| {
        for _ in 0..ROUNDS {
            note(&party, &name, &tokens).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    join_all(all).await;
    assert_eq!(tokens.lock().unwrap().len(), 6 * ROUNDS);
    assert_rising(&tokens);
    meeting.nothing_is_left([&name]).await;
}

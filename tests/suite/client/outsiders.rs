//! Tasks of one process beside a client that has no place in the line, as Redisson's have none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, LockStore, Outcome};
use tower_distributed_lock::{LockClient, LockMode, LockRequest, MemoryStore};
use uuid::Uuid;

const TASKS: usize = 8;
const WORK: Duration = Duration::from_millis(1);
/// On a clock that stands still while anything can run.
const CONTEST: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(30);

/// The sections of the longest turn of a process: the first, and the hand-overs after it.
const HANDOVERS: usize = 65;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Outsider,
}

/// The sections, in order.
#[derive(Default, Clone)]
struct Log(Arc<Mutex<Vec<Side>>>);

impl Log {
    fn add(&self, side: Side) {
        self.0.lock().unwrap().push(side);
    }

    /// Every side's turns: how many sections it had in a row.
    fn turns(&self) -> Vec<(Side, usize)> {
        let sections = self.0.lock().unwrap();
        let turns = sections.chunk_by(|one, next| one == next);
        turns.map(|turn| (turn[0], turn.len())).collect()
    }
}

/// Enters `in_a_row` sections in a row: after each it asks again before another can.
async fn outsider(store: MemoryStore, mode: LockMode, in_a_row: usize, log: Log) {
    let attempt = |number| {
        let hold = Hold {
            key: "n".into(),
            id: HoldId::new(Uuid::from_u128(1), number),
            mode,
        };
        Attempt::new(hold, LEASE).patience(LEASE).in_line(false)
    };
    let over = Instant::now() + CONTEST;
    let mut number = 0;
    while Instant::now() < over {
        let attempt = attempt(number);
        match store.acquire(&attempt).await.expect("it is there") {
            Outcome::Granted { .. } => {
                log.add(Side::Outsider);
                sleep(WORK).await;
                let released = store.release(&attempt.hold, None).await;
                released.expect("it is there");
                number += 1;
                if number % in_a_row as u64 == 0 {
                    sleep(WORK).await;
                }
            }
            Outcome::Refused { retry_after } => {
                // It listens only while it waits: its own release would else count itself as a waiter.
                let mut wakeups = store.subscribe(&attempt).await.expect("it is there");
                let _ = timeout(retry_after, wakeups.wait()).await;
            }
        }
    }
}

/// Takes one lock after the other until the contest is over, and logs the sections on the key `n`.
async fn closed_loop(request: LockRequest, side: Side, log: Log) {
    let over = Instant::now() + CONTEST;
    while Instant::now() < over {
        let guard = request.clone().wait(LEASE).await.expect("granted");
        if guard.key().as_str() == "n" {
            log.add(side);
        }
        sleep(WORK).await;
        guard.release().await.expect("held");
    }
}

/// The turns of both sides.
async fn contest(mode: LockMode, in_a_row: usize) -> Vec<(Side, usize)> {
    let store = MemoryStore::new();
    let request = LockClient::new(store.clone()).lock("n").mode(mode);
    let log = Log::default();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(closed_loop(request.clone(), Side::Ours, log.clone()));
    }
    tasks.spawn(outsider(store, mode, in_a_row, log.clone()));
    tasks.join_all().await;
    log.turns()
}

/// A turn of ours has about as many sections as the outsider had before it: at most two fewer, and one more, because a hold is handed over
/// once beside clients outside of the line.
#[tokio::test(start_paused = true)]
async fn a_turn_has_about_as_many_sections_as_that_of_a_client_outside_the_line() {
    for mode in [LockMode::Reentrant, LockMode::Write] {
        for in_a_row in [1, 4, 8] {
            let turns = contest(mode, in_a_row).await;
            assert!(turns.len() > 50, "few turns: {turns:?}");
            // The first turn of ours begins before the outsider listens. The last is that of the outsider, or after its end.
            let middle = &turns[2..turns.len() - 2];
            for pair in middle.windows(2) {
                if let [(Side::Outsider, theirs), (Side::Ours, ours)] = *pair {
                    let fewest = theirs.saturating_sub(2).max(1);
                    assert!(
                        (fewest..=theirs + 1).contains(&ours),
                        "{mode:?} {in_a_row}: {turns:?}"
                    );
                }
            }
        }
    }
}

/// Requests for any of several keys have no place in the line. A process with many of them has turns of many sections; after
/// each, a request in line has its turn.
#[tokio::test(start_paused = true)]
async fn requests_for_any_key_share_it_with_the_line() {
    let store = MemoryStore::new();
    let (here, elsewhere) = (LockClient::new(store.clone()), LockClient::new(store));
    let log = Log::default();
    let mut tasks = JoinSet::new();
    let any = here.lock_any(["n", "m"]);
    for _ in 0..TASKS {
        tasks.spawn(closed_loop(any.clone(), Side::Outsider, log.clone()));
    }
    tasks.spawn(closed_loop(elsewhere.lock("n"), Side::Ours, log.clone()));
    tasks.join_all().await;
    let turns = log.turns();
    // The first begins before the other side asks. The last goes on after the other side's end.
    for turn in &turns[1..turns.len() - 1] {
        assert!(turn.1 <= HANDOVERS, "{turns:?}");
    }
    assert!(turns.len() > 10, "{turns:?}");
}

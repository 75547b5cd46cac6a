//! Several clients of ours and threads of both Redissons change a plain counter under one lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_distributed_lock::Owner;

use super::redisson::Version;
use super::{Kind, LEASE, Meeting, Party};

/// The duration of the test.
const TIME: Duration = Duration::from_secs(4);

/// How many turns each language must have at least.
const PROGRESS: u64 = 5;

/// A counter that loses updates if two writers overlap.
#[derive(Debug, Default)]
struct Counter {
    value: AtomicU64,
    changes: AtomicU64,
}

impl Counter {
    async fn increment(&self) {
        let value = self.value.load(Ordering::SeqCst);
        pause(2).await;
        self.value.store(value + 1, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    async fn read(&self) {
        let value = self.value.load(Ordering::SeqCst);
        pause(2).await;
        let later = self.value.load(Ordering::SeqCst);
        assert_eq!(value, later, "a writer wrote beside a reader");
    }

    fn assert_exact(&self, what: &str) {
        let (value, changes) = (&self.value, &self.changes);
        let lost = changes.load(Ordering::SeqCst) - value.load(Ordering::SeqCst);
        assert_eq!(lost, 0, "{what}: updates were lost");
    }
}

/// Sleeps for up to `most` milliseconds.
async fn pause(most: u64) {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(..most * 1000))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_and_both_languages_make_progress() {
    let meeting = Meeting::open().await;
    let kinds = [Kind::Reentrant, Kind::Fair, Kind::Fenced, Kind::Write];
    join_all(kinds.map(|kind| torture(&meeting, kind))).await;
}

/// All parties that know this kind take the lock; parties that write mostly read.
async fn torture(meeting: &Meeting, kind: Kind) {
    let name = meeting.name();
    let counter = Arc::new(Counter::default());
    let over = Instant::now() + TIME;
    let runs = parties(meeting, kind).into_iter().map(|party| {
        let (name, counter) = (name.clone(), counter.clone());
        let language = party.language();
        let run = tokio::spawn(async move {
            let mut rounds = 0_u64;
            while Instant::now() < over {
                let wanted = match kind {
                    Kind::Write if !rounds.is_multiple_of(3) => Kind::Read,
                    kind => kind,
                };
                let held = party.lock(wanted, &name, LEASE).await;
                match wanted {
                    Kind::Read => counter.read().await,
                    _ => counter.increment().await,
                }
                held.release().await;
                rounds += 1;
                pause(5).await;
            }
            rounds
        });
        (language, run)
    });
    let mut rounds = BTreeMap::<_, u64>::new();
    for (language, run) in runs.collect::<Vec<_>>() {
        *rounds.entry(language).or_default() += run.await.expect("it gets on");
    }
    println!("{kind}: {rounds:?}");
    counter.assert_exact(&kind.to_string());
    for (language, rounds) in rounds {
        assert!(rounds >= PROGRESS, "{kind}: {language} had {rounds} turns");
    }
    meeting.nothing_is_left([&name]).await;
}

/// Two clients of ours with two owners each, and two threads of every Redisson that knows the kind.
fn parties(meeting: &Meeting, kind: Kind) -> Vec<Party> {
    let mut parties = Vec::new();
    for _ in 0..2 {
        if let Party::Rust(client, _) = meeting.rust() {
            parties.extend((0..2).map(|_| Party::Rust(client.clone(), Owner::new())));
        }
        parties.extend(Version::ALL.map(|version| meeting.java(version)));
    }
    parties.retain(|party| party.knows(kind));
    parties
}

//! When the store answers, the replicas have the change.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::{HoldStatus, LockStore, Record, Renewal, SeveralOutcome, Want};

use super::store;
use crate::redis_store::{MODES, asks, attempt, lasting, releases};
use crate::support::{Dump, Proxy, Replicated};

async fn dumps(replicated: &Replicated) -> Vec<Dump> {
    let replicas = &replicated.servers[1..];
    join_all(replicas.iter().map(|replica| replica.dump())).await
}

async fn everywhere(replicated: &Replicated, key: &str) -> usize {
    let dumps = dumps(replicated).await;
    dumps.iter().filter(|dump| dump.contains_key(key)).count()
}

fn release(link: &Proxy) {
    link.requests.release();
    link.replies.release();
}

/// The answer to a question that waits for this number of replicas. All links are held, and those of these replicas are released
/// one by one: until the last of them has the change, there is no answer.
async fn acknowledged<T>(
    replicated: &Replicated,
    replicas: usize,
    question: impl Future<Output = T>,
) -> T {
    /// Long enough for an answer that waits for nothing.
    const EARLY: Duration = Duration::from_millis(50);
    replicated.hold_links();
    let mut question = pin!(question);
    for link in &replicated.links[..replicas] {
        let early = timeout(EARLY, &mut question).await;
        assert!(early.is_err(), "answered before the replicas have it");
        release(link);
    }
    let answer = question.await;
    replicated.links[replicas..].iter().for_each(release);
    answer
}

#[tokio::test]
async fn a_grant_and_a_release_are_in_the_replicas_when_they_are_answered() {
    let replicated = Replicated::start(2).await;
    for at_least in [2, 1] {
        let store = store(&replicated, at_least).await;
        for mode in MODES {
            let key = format!("{mode:?}");
            let hold = attempt(key.as_str(), mode);
            assert!(acknowledged(&replicated, at_least, asks(&store, &hold)).await);
            assert!(
                everywhere(&replicated, &key).await >= at_least,
                "{at_least} {mode:?}"
            );
            assert!(acknowledged(&replicated, at_least, releases(&store, &hold)).await);
            assert!(everywhere(&replicated, &key).await <= 2 - at_least);
        }
    }
}

#[tokio::test]
async fn several_keys_renewals_and_records_are_in_the_replicas_when_answered() {
    let replicated = Replicated::start(2).await;
    let store = store(&replicated, 2).await;
    let both = ["a", "b"].map(|key| attempt(key, LockMode::Write));
    let asking = store.acquire_several(&both, Want::All);
    let granted = acknowledged(&replicated, 2, asking).await.unwrap();
    assert!(matches!(granted, SeveralOutcome::Granted(_)), "{granted:?}");
    assert_eq!(
        (
            everywhere(&replicated, "a").await,
            everywhere(&replicated, "b").await
        ),
        (2, 2)
    );

    let any = ["a", "c"].map(|key| attempt(key, LockMode::Write));
    let asking = store.acquire_several(&any, Want::Any);
    let granted = acknowledged(&replicated, 2, asking).await.unwrap();
    assert!(
        matches!(&granted, SeveralOutcome::Granted(grants) if grants[0].index == 1),
        "{granted:?}"
    );
    assert_eq!(everywhere(&replicated, "c").await, 2);

    let lease = Duration::from_secs(600);
    let renewals = both
        .clone()
        .map(|attempt| Renewal::new(attempt.hold, lease));
    let renewed = acknowledged(&replicated, 2, store.renew(&renewals)).await;
    assert_eq!(renewed.unwrap(), [HoldStatus::Held; 2]);
    for dump in dumps(&replicated).await {
        assert!(dump["b"].ttl.unwrap() > Duration::from_secs(300));
    }
    let record = Record::new("done", lease);
    let ending = store.release(&both[0].hold, Some(&record));
    let ended = acknowledged(&replicated, 2, ending).await;
    assert_eq!(ended.unwrap().status, HoldStatus::Held);
    assert_eq!(everywhere(&replicated, "tower_lock_record:{a}").await, 2);
    assert_eq!(everywhere(&replicated, "a").await, 0);
}

#[tokio::test]
async fn a_refusal_and_a_hold_that_is_gone_wait_for_no_replica() {
    let mut replicated = Replicated::start(1).await;
    let store = store(&replicated, 1).await;
    let holder = lasting(attempt("k", LockMode::Write), Duration::from_secs(300));
    assert!(asks(&store, &holder).await);
    replicated.servers[1].pause();
    let answers = async {
        let other = attempt("k", LockMode::Write);
        (asks(&store, &other).await, releases(&store, &other).await)
    };
    // The replicas have 30 seconds.
    let answers = tokio::time::timeout(Duration::from_secs(20), answers).await;
    assert_eq!(answers.expect("at once"), (false, false));
    replicated.servers[1].resume();
}

#[tokio::test]
async fn many_callers_wait_for_the_replicas_together() {
    const TASKS: u64 = 64;
    const TIMES: u64 = 5;
    let replicated = Replicated::start(1).await;
    let store = store(&replicated, 1).await;
    replicated.links[0].delay(Duration::from_millis(50));
    let began = std::time::Instant::now();
    let pairs = (0..TASKS).map(async |task| {
        for _ in 0..TIMES {
            let hold = attempt(format!("k{task}"), LockMode::Reentrant);
            assert!(asks(&store, &hold).await && releases(&store, &hold).await);
        }
    });
    join_all(pairs).await;
    let changes = TASKS * TIMES * 2;
    let stats: String = replicated.master().ask(&["INFO", "commandstats"]).await;
    let waits = stats.lines().find_map(|line| {
        let calls = line.strip_prefix("cmdstat_wait:calls=")?;
        calls.split(',').next()?.parse::<u64>().ok()
    });
    let waits = waits.expect("WAIT was sent");
    println!("{changes} changes, {waits} WAITs, {:?}", began.elapsed());
    assert!(waits * 8 <= changes, "{waits} WAITs for {changes} changes");
}

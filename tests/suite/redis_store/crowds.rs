//! The cost of a script does not depend on the number of readers, waiting readers and waiting writers.

use std::time::{Duration, Instant};

use redis::AsyncTypedCommands;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::store::{Inspect, Record, Renewal, Want};

use super::bounded::{CROWD, MOST, costliest};
use super::*;
use crate::support::{Monitor, eventually};

/// Puts `CROWD` readers of this crate into `k`, each alive for `lives` ms, or dead for 0. The lock itself lives for a minute.
async fn readers(server: &RedisServer, lives: u32) {
    fill(
        server,
        "redis.call('HSET', 'k', 'mode', 'read') \
         for i = 1, tonumber(ARGV[1]) do \
           local id = '0b5a3c1e-0000-8000-8000-000000000666:' .. i \
           redis.call('HSET', 'k', id, 1) \
           if ARGV[2] ~= '0' then \
             redis.call('SET', '{k}:' .. id .. ':rwlock_timeout:1', 1, 'PX', ARGV[2]) \
           end \
         end \
         redis.call('PEXPIRE', 'k', 60000)",
        lives,
    )
    .await;
}

/// Puts `CROWD` waiting readers, writers and passes beside `k`.
async fn waiters(server: &RedisServer, lives: u32) {
    fill(
        server,
        "local now = redis.call('TIME')[1] * 1000 \
         for _, set in ipairs({'readers', 'writers', 'pass'}) do \
           for i = 1, tonumber(ARGV[1]) do \
             redis.call('ZADD', 'tower_lock_' .. set .. ':{k}', now + ARGV[2], 'crowd:' .. i) \
           end \
           redis.call('PEXPIRE', 'tower_lock_' .. set .. ':{k}', 60000) \
         end",
        lives,
    )
    .await;
}

async fn fill(server: &RedisServer, script: &str, lives: u32) {
    let call = redis::cmd("EVAL")
        .arg(script)
        .arg(0)
        .arg(CROWD)
        .arg(lives)
        .to_owned();
    let mut redis = server.connection().await;
    call.exec_async(&mut redis).await.expect("they come");
}

async fn is_bounded(monitor: &Monitor<'_>) {
    let most = costliest(monitor).await;
    assert!(most > 3 && most <= MOST, "{most} commands");
}

fn read() -> Attempt {
    patient("k", LockMode::Read)
}

fn write() -> Attempt {
    patient("k", LockMode::Write)
}

#[tokio::test]
async fn scripts_about_a_key_with_many_readers_cost_the_same_as_with_few() {
    let (server, store) = server_and_store().await;
    let (reader, other, writer) = (read(), read(), write());
    readers(&server, 60_000).await;
    let monitor = server.monitor().await;
    assert!(asks(&store, &reader).await && asks(&store, &other).await);
    assert!(!asks(&store, &writer).await && !asks(&store, &attempt("k", LockMode::Write)).await);
    assert!(!asks(&store, &read()).await, "a writer waits");
    let renewals = [&reader, &other].map(|attempt| Renewal::new(attempt.hold.clone(), LEASE));
    assert_eq!(store.renew(&renewals).await.unwrap(), [HoldStatus::Held; 2]);
    assert!(holds(&store, &reader).await);
    assert!(releases(&store, &reader).await);
    store.withdraw(&other, true).await.unwrap();
    store.withdraw(&writer, true).await.unwrap();
    let several = [
        attempt("k", LockMode::Write),
        attempt("{k}", LockMode::Write),
    ];
    store.acquire_several(&several, Want::All).await.unwrap();
    store
        .acquire_several(&several[..1], Want::Any)
        .await
        .unwrap();
    is_bounded(&monitor).await;

    let monitor = server.monitor().await;
    let key = LockKey::new("k");
    let seen = store.inspect(&key).await.unwrap();
    assert!(!seen.holders.is_empty() && seen.holders.len() <= 100);
    is_bounded(&monitor).await;
    let monitor = server.monitor().await;
    assert!(store.force_unlock(&key).await.unwrap());
    is_bounded(&monitor).await;
    assert!(asks(&store, &write()).await, "it is free again");
}

#[tokio::test]
async fn scripts_about_a_key_with_many_waiters_cost_the_same_as_with_few() {
    for lives in [60_000, 0] {
        let (server, store) = server_and_store().await;
        let (writer, reader) = (write(), read());
        assert!(asks(&store, &writer).await);
        waiters(&server, lives).await;
        server
            .connection()
            .await
            .del("tower_lock_pass:{k}")
            .await
            .unwrap();
        let monitor = server.monitor().await;
        let seen = store.inspect(&LockKey::new("k")).await.unwrap();
        assert!(seen.waiters.len() <= 100);
        assert!(!asks(&store, &reader).await && !asks(&store, &write()).await);
        let record = Record::new("done", LEASE);
        store.release(&writer.hold, Some(&record)).await.unwrap();
        assert!(
            asks(&store, &reader).await,
            "it waited when the writer left"
        );
        assert!(releases(&store, &reader).await);
        waiters(&server, lives).await;
        let last = write();
        store.acquire(&last).await.unwrap();
        store.withdraw(&last, true).await.unwrap();
        let last = read();
        store.acquire(&last).await.unwrap();
        store.withdraw(&last, false).await.unwrap();
        store.force_unlock(&LockKey::new("k")).await.unwrap();
        is_bounded(&monitor).await;
    }
}

/// L1. The lock's own life is longer than that of its readers, as after the release of a reader with a longer lease.
#[tokio::test]
async fn many_dead_readers_do_not_hold_a_writer_back_for_the_life_of_the_hash() {
    let (server, store) = server_and_store().await;
    readers(&server, 0).await;
    let monitor = server.monitor().await;
    let writer = write();
    let began = Instant::now();
    let mut asked = 0;
    while let Outcome::Refused { retry_after } = store.acquire(&writer).await.unwrap() {
        asked += 1;
        assert!(
            retry_after < Duration::from_millis(100),
            "asking again helps: {retry_after:?}"
        );
    }
    assert!(asked < 50 && began.elapsed() < Duration::from_secs(30));
    is_bounded(&monitor).await;
    assert!(releases(&store, &writer).await);

    // The last live reader among many dead ones releases.
    let reader = attempt("k", LockMode::Read);
    readers(&server, 0).await;
    assert!(asks(&store, &reader).await);
    let writer = write();
    assert!(!asks(&store, &writer).await);
    let mut wakeups = store.subscribe(&writer).await.unwrap();
    let monitor = server.monitor().await;
    assert!(releases(&store, &reader).await);
    woken(&mut wakeups).await;
    eventually("it is granted", Duration::from_secs(10), async || {
        asks(&store, &writer).await
    })
    .await;
    is_bounded(&monitor).await;
}

/// S7. Live readers are found among dead ones.
#[tokio::test]
async fn one_living_reader_among_many_dead_ones_keeps_writers_out() {
    let (server, store) = server_and_store().await;
    readers(&server, 0).await;
    let living = attempt("k", LockMode::Read);
    assert!(asks(&store, &living).await);
    for _ in 0..100 {
        assert!(!asks(&store, &write()).await);
    }
    assert!(holds(&store, &living).await);
    let leaving = attempt("k", LockMode::Read);
    server
        .connection()
        .await
        .del("tower_lock_writers:{k}")
        .await
        .unwrap();
    assert!(asks(&store, &leaving).await && releases(&store, &leaving).await);
    assert!(holds(&store, &living).await);
    assert!(!asks(&store, &write()).await);
}

/// S7. A reader of Redisson that entered several times lives as long as one of its timeout keys.
#[tokio::test]
async fn a_nested_reader_of_redisson_lives_as_long_as_one_of_its_keys() {
    let (server, store) = server_and_store().await;
    for crowd in [false, true] {
        for (count, alive) in [("3", "1"), ("3", "3"), ("40", "20"), ("40", "1")] {
            server.connection().await.flushall().await.unwrap();
            if crowd {
                readers(&server, 0).await;
            }
            let java = "0b5a3c1e-0000-4000-8000-00000000beef:1";
            let mut redis = server.connection().await;
            let fields = [("mode", "read"), (java, count)];
            redis.hset_multiple("k", &fields).await.unwrap();
            redis.pexpire("k", 30_000).await.unwrap();
            let timeout = format!("{{k}}:{java}:rwlock_timeout:{alive}");
            redis.pset_ex(timeout, "1", 30_000).await.unwrap();
            let ours = attempt("k", LockMode::Read);
            assert!(asks(&store, &ours).await && releases(&store, &ours).await);
            for _ in 0..100 {
                assert!(!asks(&store, &attempt("k", LockMode::Write)).await);
            }
            assert!(redis.hexists("k", java).await.unwrap(), "{count} {alive}");
        }
    }
}

//! Readers never starve writers, and writers never starve readers.

use std::time::Duration;

use redis::AsyncTypedCommands;
use tokio::time::{Instant, timeout};
use tower_distributed_lock::store::{LockStore, WAITER_LIVENESS};
use tower_distributed_lock::{LockClient, LockMode};

use super::*;
use crate::support::{Dump, eventually};

fn read() -> Attempt {
    patient("k", LockMode::Read)
}

fn write() -> Attempt {
    patient("k", LockMode::Write)
}

#[tokio::test]
async fn a_waiting_writer_holds_back_new_readers_until_it_withdraws() {
    let (server, store) = server_and_store().await;
    let (reading, writer, reader) = (read(), write(), read());
    assert!(asks(&store, &reading).await);
    assert!(!asks(&store, &writer).await);
    assert!(retry_after(&store, &reader).await <= WAITER_LIVENESS);
    assert!(!asks(&store, &attempt("k", LockMode::Read)).await);
    assert!(
        asks(&store, &reading).await,
        "who reads already is not held back"
    );

    let mut wakeups = store.subscribe(&reader).await.unwrap();
    store.withdraw(&writer, false).await.unwrap();
    woken(&mut wakeups).await;
    assert!(asks(&store, &reader).await);
    assert!(releases(&store, &reading).await && releases(&store, &reader).await);
    assert_eq!(server.dump().await, Dump::new());
}

/// Readers of Redisson do not wait for a writer of ours. So readers of ours come in beside them half of the time: the more of
/// them, the rarer are the moments in which the writer finds none.
#[tokio::test]
async fn a_writer_lets_readers_in_beside_readers_of_redisson_now_and_then() {
    let (server, store) = server_and_store().await;
    let redissons = "00000000-0000-4000-8000-000000000000:1";
    let timeout = format!("{{k}}:{redissons}:rwlock_timeout:1");
    let (reading, writer, beside, late) = (read(), write(), read(), read());
    assert!(asks(&store, &reading).await);
    assert!(!asks(&store, &writer).await);
    // It has just come, however long this test was away.
    let place = writer.hold.id.to_string();
    let comes = async |micros| {
        let line = ["ZINCRBY", "tower_lock_line:{k}", micros, &place];
        server.ask::<f64>(&line).await
    };
    comes("60000000").await;
    assert!(!asks(&store, &beside).await, "no client of Redisson reads");
    let _: u64 = server.ask(&["HSET", "k", redissons, "1"]).await;
    let () = server.ask(&["SET", &timeout, "1", "PX", "30000"]).await;
    assert!(asks(&store, &beside).await);
    assert!(releases(&store, &reading).await && releases(&store, &beside).await);

    comes("-120000000").await;
    let limit = Duration::from_secs(20);
    for granted in [false, true, false, true] {
        eventually("the other part of its wait", limit, async || {
            let passing = attempt("k", LockMode::Read);
            assert!(!asks(&store, &writer).await, "Redisson reads");
            if let Outcome::Refused { retry_after } = store.acquire(&passing).await.unwrap() {
                assert!(retry_after <= Duration::from_millis(100));
            }
            releases(&store, &passing).await == granted
        })
        .await;
    }

    let _: u64 = server.ask(&["DEL", "k", &timeout]).await;
    assert!(!asks(&store, &late).await, "the writer is next");
    assert!(asks(&store, &writer).await && releases(&store, &writer).await);
    assert!(asks(&store, &late).await && releases(&store, &late).await);
}

/// Readers of ours ask sooner than a thread of Redisson wakes: it would never write after a writer of ours.
#[tokio::test]
async fn readers_that_waited_beside_redisson_let_it_go_first_when_a_writer_leaves() {
    for beside_redisson in [true, false] {
        let (server, store) = server_and_store().await;
        let (reading, writer, waiting) = (read(), write(), read());
        assert!(asks(&store, &reading).await);
        assert!(!asks(&store, &writer).await);
        if beside_redisson {
            let redissons = "00000000-0000-4000-8000-000000000000:1";
            let _: u64 = server.ask(&["HSET", "k", redissons, "1"]).await;
        }
        eventually(
            "the writer keeps it out",
            Duration::from_secs(20),
            async || {
                assert!(!asks(&store, &writer).await, "it is read");
                !asks(&store, &waiting).await || !releases(&store, &waiting).await
            },
        )
        .await;
        let _: u64 = server.ask(&["DEL", "k"]).await;
        assert!(asks(&store, &writer).await);
        assert!(!asks(&store, &waiting).await);
        assert!(releases(&store, &writer).await);

        // Longer than any, so that it does not end by itself.
        let busy = "tower_lock_busy:{k}";
        let asked: u64 = unusual(&server, busy).await[ASKED].parse().unwrap();
        change_unusual(&server, busy, TURN, "1").await;
        change_unusual(&server, busy, ENDS, &(asked + 3_600_000).to_string()).await;
        let one_try = attempt("k", LockMode::Read);
        assert!(asks(&store, &one_try).await, "it cannot come back");
        assert!(asks(&store, &waiting).await, "others read");
        assert!(releases(&store, &one_try).await && releases(&store, &waiting).await);
        assert_eq!(!asks(&store, &waiting).await, beside_redisson);
        change_unusual(&server, busy, TURN, "0").await;
        assert!(asks(&store, &waiting).await, "the turn is over");
    }
}

#[tokio::test]
async fn a_writer_without_patience_blocks_no_readers() {
    let (server, store) = server_and_store().await;
    let reading = read();
    assert!(asks(&store, &reading).await);
    assert!(!asks(&store, &attempt("k", LockMode::Write)).await);
    assert!(asks(&store, &read()).await);
    assert!(
        !server
            .dump()
            .await
            .keys()
            .any(|key| key.starts_with("tower_lock"))
    );
}

#[tokio::test]
async fn readers_who_wait_when_a_writer_leaves_go_before_the_next_writer() {
    let (server, store) = server_and_store().await;
    let (writing, next, late) = (write(), write(), read());
    let waiting = [read(), read(), read()];
    assert!(asks(&store, &writing).await);
    for reader in &waiting {
        assert!(!asks(&store, reader).await);
    }
    assert!(!asks(&store, &next).await);
    assert!(releases(&store, &writing).await);

    assert!(!asks(&store, &late).await, "it came after the writer left");
    assert!(retry_after(&store, &next).await <= WAITER_LIVENESS);
    assert!(asks(&store, &waiting[0]).await);
    assert!(releases(&store, &waiting[0]).await);
    assert!(!asks(&store, &next).await, "two passes are left");
    assert!(asks(&store, &waiting[1]).await);
    assert!(releases(&store, &waiting[1]).await);

    let mut wakeups = store.subscribe(&next).await.unwrap();
    store.withdraw(&waiting[2], false).await.unwrap();
    woken(&mut wakeups).await;
    assert!(asks(&store, &next).await, "the last pass was handed back");
    assert!(releases(&store, &next).await);
    assert!(asks(&store, &late).await);
    assert!(releases(&store, &late).await);
    // It listens to Redisson, so that its own release gives those outside the line a turn.
    assert_eq!(server.dump_without_turns().await, Dump::new());
}

#[tokio::test]
async fn readers_that_stopped_asking_get_no_pass_and_keep_none() {
    let (server, store) = server_and_store().await;
    let (writing, next, dead) = (write(), write(), read());
    assert!(asks(&store, &writing).await);
    assert!(!asks(&store, &dead).await);
    lapse(&server, "tower_lock_readers:{k}", &dead).await;
    assert!(releases(&store, &writing).await);
    assert!(asks(&store, &next).await);

    assert!(!asks(&store, &dead).await);
    assert!(releases(&store, &next).await);
    assert!(!asks(&store, &writing).await, "a reader has a pass");
    lapse(&server, "tower_lock_pass:{k}", &dead).await;
    assert!(asks(&store, &writing).await, "it has stopped asking");
    assert!(
        !asks(&store, &dead).await,
        "a pass that lapsed does not come back"
    );
}

#[tokio::test]
async fn a_dead_writer_holds_readers_back_for_seconds() {
    let (server, store) = server_and_store().await;
    let (reading, dead, reader) = (read(), write(), read());
    assert!(asks(&store, &reading).await);
    assert!(!asks(&store, &dead).await);
    let left = retry_after(&store, &reader).await;
    assert!(left <= WAITER_LIVENESS);
    let ttl = server.dump().await["tower_lock_writers:{k}"].ttl.unwrap();
    assert!(ttl <= 3 * WAITER_LIVENESS);
    lapse(&server, "tower_lock_writers:{k}", &dead).await;
    assert!(asks(&store, &reader).await);
}

#[tokio::test]
async fn entries_of_waiters_expire_with_the_last_of_them() {
    let (server, store) = server_and_store().await;
    let (reading, writer) = (lasting(read(), Duration::from_secs(1)), write());
    assert!(asks(&store, &reading).await);
    assert!(!asks(&store, &writer).await);
    assert!(!asks(&store, &read()).await);
    let limit = WAITER_LIVENESS + Duration::from_secs(10);
    eventually("everything expires", limit, async || {
        server.dump().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_reader_with_a_pass_that_finds_a_foreign_writer_keeps_its_pass() {
    let (server, store) = server_and_store().await;
    let (writing, waiting, next) = (write(), read(), write());
    assert!(asks(&store, &writing).await);
    assert!(!asks(&store, &waiting).await);
    assert!(releases(&store, &writing).await);
    let mut redis = server.connection().await;
    let fields = [("mode", "write"), ("other:1:write", "1")];
    redis.hset_multiple("k", &fields).await.unwrap();
    redis.pexpire("k", 30_000).await.unwrap();
    assert!(!asks(&store, &waiting).await);
    assert!(!asks(&store, &next).await);
    redis.del("k").await.unwrap();
    assert!(!asks(&store, &next).await);
    assert!(asks(&store, &waiting).await);
}

/// The release of that writer wakes it: a writer of ours in line waits for the reader with a pass.
#[tokio::test]
async fn a_reader_with_a_pass_listens_to_the_writer_of_redisson_that_went_before_it() {
    let (server, store) = server_and_store().await;
    let (writing, waiting, next) = (write(), read(), write());
    assert!(asks(&store, &writing).await);
    assert!(!asks(&store, &waiting).await && !asks(&store, &next).await);
    let mut wakeups = store.subscribe(&waiting).await.unwrap();
    assert!(releases(&store, &writing).await);
    woken(&mut wakeups).await;
    let mut redis = server.connection().await;
    let javas = "0b5a3c1e-51ab-4d22-8c11-9f1f3a9a1b2c:1:write";
    let fields = [("mode", "write"), (javas, "1")];
    redis.hset_multiple("k", &fields).await.unwrap();
    redis.pexpire("k", 30_000).await.unwrap();
    assert!(!asks(&store, &waiting).await);
    eventually("it listens", Duration::from_secs(5), async || {
        let channels = server.pubsub_channels().await;
        channels.get("redisson_rwlock:{k}") == Some(&1)
    })
    .await;
    redis.del("k").await.unwrap();
    redis.publish("redisson_rwlock:{k}", "1").await.unwrap();
    woken(&mut wakeups).await;
    assert!(asks(&store, &waiting).await);
}

/// Changes the data as if the attempt had not asked for a while.
async fn lapse(server: &RedisServer, set: &str, attempt: &Attempt) {
    let mut redis = server.connection().await;
    redis
        .zadd(set, attempt.hold.id.to_string(), 1)
        .await
        .unwrap();
}

/// A reader of Redisson knows no passes: it comes in beside them, and its release is announced on a channel of Redisson only.
#[tokio::test]
async fn a_writer_that_waits_for_passes_listens_to_redisson() {
    let (server, store) = server_and_store().await;
    let (writing, next, waiting) = (write(), write(), read());
    assert!(asks(&store, &writing).await);
    assert!(!asks(&store, &waiting).await && !asks(&store, &next).await);
    assert!(releases(&store, &writing).await);
    let mut wakeups = store.subscribe(&next).await.unwrap();
    assert!(!asks(&store, &next).await, "a reader has a pass");
    eventually("it listens", Duration::from_secs(5), async || {
        server
            .pubsub_channels()
            .await
            .contains_key("redisson_rwlock:{k}")
    })
    .await;
    woken(&mut wakeups).await;
    let mut redis = server.connection().await;
    redis.publish("redisson_rwlock:{k}", "0").await.unwrap();
    woken(&mut wakeups).await;
}

/// A waiter asks again after three quarters of a second at the earliest. A wake-up takes less than this.
const WITHOUT_POLL: Duration = Duration::from_millis(500);

/// What Redisson does for a read lock and for its release. KEYS: the lock, Redisson's channel, the prefix of the thread's timeouts. ARGV:
/// the thread.
const REDISSON_READS: &str = "redis.call('hset', KEYS[1], 'mode', 'read') \
     redis.call('hset', KEYS[1], ARGV[1], 1) \
     redis.call('set', KEYS[3] .. ':1', 1, 'PX', 30000) \
     redis.call('pexpire', KEYS[1], 30000)";
const REDISSON_LEAVES: &str = "redis.call('hincrby', KEYS[1], ARGV[1], -1) \
     redis.call('hdel', KEYS[1], ARGV[1]) \
     redis.call('del', KEYS[3] .. ':1') \
     if redis.call('hlen', KEYS[1]) == 1 then \
       redis.call('del', KEYS[1]) \
       redis.call('publish', KEYS[2], 0) \
     end";

/// A reader of Redisson comes in while the writer waits for a reader of ours with a pass, and stays longer than that one. Its end is
/// announced on Redisson's channel only, to which the writer must listen before it knows of that reader.
#[tokio::test]
async fn a_writer_is_woken_by_a_reader_of_redisson_that_came_in_beside_a_pass() {
    let (server, store) = server_and_store().await;
    let client = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let java = "0b5a3c1e-51ab-4d22-8c11-9f1f3a9a1b2c:1";
    let mut waited = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        let (writing, passing) = (patient(key, LockMode::Write), patient(key, LockMode::Read));
        assert!(asks(&store, &writing).await && !asks(&store, &passing).await);
        assert!(releases(&store, &writing).await);
        let request = client.lock(key).mode(LockMode::Write);
        let writer =
            tokio::spawn(async move { request.await.map(|guard| (guard, Instant::now())) });
        let channel = format!("redisson_rwlock:{{{key}}}");
        eventually("it listens", WAITER_LIVENESS, async || {
            server.pubsub_channels().await.contains_key(&channel)
        })
        .await;

        let timeouts = format!("{{{key}}}:{java}:rwlock_timeout");
        let reader = |script| ["EVAL", script, "3", key, &channel, &timeouts, java];
        let () = server.ask(&reader(REDISSON_READS)).await;
        store.withdraw(&passing, false).await.unwrap();
        let released = Instant::now();
        let () = server.ask(&reader(REDISSON_LEAVES)).await;
        let granted = timeout(LEASE, writer).await.expect("in time").unwrap();
        let (guard, at) = granted.unwrap();
        waited.push(at - released);
        guard.release().await.unwrap();
    }
    waited.sort_unstable();
    assert!(
        waited[2] < WITHOUT_POLL,
        "it waits for its poll: {waited:?}"
    );
}

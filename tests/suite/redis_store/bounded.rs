//! The cost of a script does not depend on the number of holders and waiters.

use redis::AsyncTypedCommands;
use tower_distributed_lock::store::WAITER_LIVENESS;

use super::*;
use crate::support::Monitor;

/// The number of entries in the key.
pub(super) const CROWD: usize = 10_000;

/// The largest number of commands of a script, whatever the key contains.
pub(super) const MOST: usize = 150;

/// Fills the fair queue of `k` with waiters of ours: alive, or dead.
async fn queue_up(server: &RedisServer, alive: bool) {
    let script = "local t = redis.call('TIME') \
         local now = t[1] * 1000 \
         for i = 1, tonumber(ARGV[1]) do \
           local id = 'crowd:' .. i \
           redis.call('RPUSH', KEYS[1], id) \
           redis.call('ZADD', KEYS[2], now + ARGV[2] + 2000, id) \
           redis.call('ZADD', KEYS[3], now + ARGV[2], id) \
         end \
         redis.call('PEXPIRE', KEYS[3], 60000)";
    let lives = match alive {
        true => 60_000,
        false => -WAITER_LIVENESS.as_millis().cast_signed(),
    };
    let call = redis::cmd("EVAL")
        .arg(script)
        .arg(3)
        .arg("redisson_lock_queue:{k}")
        .arg("redisson_lock_timeout:{k}")
        .arg("tower_lock_alive:{k}")
        .arg(CROWD)
        .arg(i64::try_from(lives).expect("a few seconds"))
        .to_owned();
    let mut redis = server.connection().await;
    call.exec_async(&mut redis).await.expect("they queue");
}

/// The largest number of commands that one script has run.
pub(super) async fn costliest(monitor: &Monitor<'_>) -> usize {
    let lines = monitor.lines().await;
    let is_inner = |line: &String| line.contains(" lua] ");
    let scripts = lines.chunk_by(|_, next| is_inner(next));
    scripts.map(<[String]>::len).max().unwrap_or_default()
}

#[tokio::test]
async fn a_fair_script_costs_the_same_whatever_the_queue() {
    for alive in [true, false] {
        let (server, store) = server_and_store().await;
        let (holder, waiter, gone) = (
            attempt("k", LockMode::Fair),
            patient("k", LockMode::Fair),
            patient("k", LockMode::Fair),
        );
        assert!(asks(&store, &holder).await);
        queue_up(&server, alive).await;
        let monitor = server.monitor().await;
        assert!(!asks(&store, &waiter).await && !asks(&store, &gone).await);
        assert!(!asks(&store, &waiter).await);
        store.withdraw(&gone, true).await.unwrap();
        assert!(releases(&store, &holder).await);
        assert!(!asks(&store, &waiter).await);
        store.withdraw(&holder, true).await.unwrap();
        let most = costliest(&monitor).await;
        assert!(most > 5 && most <= MOST, "{most} commands");

        // The first in line is granted.
        let mut redis = server.connection().await;
        redis.del("redisson_lock_queue:{k}").await.unwrap();
        queue_up(&server, true).await;
        let id = waiter.hold.id.to_string();
        redis.lpush("redisson_lock_queue:{k}", id).await.unwrap();
        let monitor = server.monitor().await;
        assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
        let most = costliest(&monitor).await;
        assert!(most > 5 && most <= MOST, "{most} commands");
    }
}

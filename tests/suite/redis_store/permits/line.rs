//! Attempts that wait for a permit.

use tower_distributed_lock::LockClient;

use super::*;

/// The requests of a process ask side by side: the refusal of another does not end what the first in line hears.
#[tokio::test]
async fn the_first_in_line_listens_to_redisson_although_another_of_its_process_asks() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    let late = now_ms(&mut redis).await + 60_000;
    redissons(&server, 0, late).await;
    let [first, second] = [(); 2].map(|()| patient("n", LockMode::permits(1)));
    let mut wakeups = store.subscribe(&first).await.unwrap();
    assert!(!asks(&store, &first).await);
    // It listens on Redisson's channel now.
    woken(&mut wakeups).await;
    assert!(!asks(&store, &second).await);
    redis.publish("redisson_sc:{n}", "1").await.unwrap();
    woken(&mut wakeups).await;
}

/// The cost does not depend on the number of holders, alive or dead.
#[tokio::test]
async fn a_script_costs_the_same_however_many_hold_a_permit() {
    for alive in [true, false] {
        let (server, store) = server_and_store().await;
        let limit = u32::try_from(CROWD).unwrap();
        let lives: i64 = if alive { 60_000 } else { -60_000 };
        let script = "local t = redis.call('TIME') \
             for i = 1, tonumber(ARGV[1]) do \
               redis.call('ZADD', KEYS[2], t[1] * 1000 + ARGV[2], 'crowd:' .. i) \
             end \
             redis.call('SET', KEYS[1], 0, 'PX', 60000)";
        let crowd = redis::cmd("EVAL")
            .arg(script)
            .arg(2)
            .arg("n")
            .arg("{n}:timeout")
            .arg(CROWD)
            .arg(lives)
            .to_owned();
        crowd
            .exec_async(&mut redis_of(&server).await)
            .await
            .unwrap();
        let monitor = server.monitor().await;
        let (asking, gone) = (permit("n", limit), permit("n", limit));
        assert_eq!(asks(&store, &asking).await, !alive);
        let _ = inspect(&store).await;
        store.withdraw(&gone, true).await.unwrap();
        assert_eq!(releases(&store, &asking).await, !alive);
        LockAdmin::new(store.clone())
            .force_unlock("n")
            .await
            .unwrap();
        let most = costliest(&monitor).await;
        assert!(most > 5 && most <= MOST, "{most} commands");
    }
}

#[tokio::test]
async fn an_inspection_names_those_who_wait_for_a_permit() {
    let (_server, store) = server_and_store().await;
    assert!(asks(&store, &permit("n", 1)).await);
    let waiter = patient("n", LockMode::permits(1));
    assert!(!asks(&store, &waiter).await);
    assert_eq!(inspect(&store).await.waiters, [waiter.hold.id.to_string()]);
    store.withdraw(&waiter, false).await.unwrap();
    assert!(inspect(&store).await.waiters.is_empty());
}

#[tokio::test]
async fn permits_go_with_locks_in_one_question() {
    use tower_distributed_lock::store::{SeveralOutcome, Want};
    let (_server, store) = server_and_store().await;
    let attempts = [
        attempt("a", LockMode::Reentrant),
        permit("b", 2),
        permit("c", 1),
        attempt("d", LockMode::Read),
    ];
    let all = store.acquire_several(&attempts, Want::All).await.unwrap();
    assert!(matches!(all, SeveralOutcome::Granted(grants) if grants.len() == 4));
    let again = [permit("b", 2), permit("c", 1)];
    let refused = store.acquire_several(&again, Want::All).await.unwrap();
    assert!(
        matches!(refused, SeveralOutcome::Refused { index: Some(1), .. }),
        "{refused:?}"
    );
    let any = store.acquire_several(&again, Want::Any).await.unwrap();
    assert!(matches!(any, SeveralOutcome::Granted(grants) if grants[0].index == 0));
    for attempt in &attempts {
        let released = store.release(&attempt.hold, None).await.unwrap();
        assert_eq!(released.status, HoldStatus::Held);
    }
    assert!(asks(&store, &permit("c", 1)).await && asks(&store, &permit("b", 2)).await);
    assert!(!asks(&store, &permit("b", 2)).await);
}

/// A request that asks beside another of its process has no place. If it is refused, its process waits in line all the same, and listens
/// there.
#[tokio::test]
async fn a_process_whose_second_request_is_refused_listens_in_line() {
    let (server, store) = server_and_store().await;
    for _ in 0..9 {
        assert!(asks(&store, &permit("n", 10)).await);
    }
    let locks = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let request = || {
        locks
            .lock("n")
            .permits(10)
            .wait(Duration::from_secs(30))
            .acquire()
    };
    let first = tokio::spawn(request());
    let second = tokio::spawn(request());
    let _first = first.await.unwrap().unwrap();
    let turn = format!("tower_lock_turn:{{n}}:{}", locks.id());
    let listens = async {
        while !server.pubsub_channels().await.contains_key(&turn) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), listens).await;
    assert!(heard.is_ok(), "{:?}", server.pubsub_channels().await);
    second.abort();
}

//! A server that fails, and a replica that takes over.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::put;
use http::request::Parts;
use http::{Request, StatusCode};
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, LockStore, Renewal};
use tower_distributed_lock::{
    DistributedLockLayer, Lease, LockClient, LockError, LockKey, LockMode, OnLost, Owner,
    RedisStore,
};

use super::{LIMIT, store};
use crate::redis_sentinel::failover::seen_by;
use crate::redis_store::{asks, attempt};
use crate::support::{Builder, Peer, RedisCluster, RedisServer, eventually};

const LEASE: Duration = Duration::from_secs(5);

/// A Cluster that goes on serving where a part of it is down.
async fn in_parts(node_timeout: &str) -> RedisCluster {
    RedisCluster::start_with(&[
        ("cluster-node-timeout", node_timeout),
        ("cluster-require-full-coverage", "no"),
    ])
    .await
}

#[tokio::test]
async fn a_server_dies_and_its_replica_takes_over() {
    let mut cluster = in_parts("3000").await;
    let locks = LockClient::new(store(&cluster).await);
    let renewed = |name: &str| locks.lock(name).lease(Lease::Renewed(LEASE));
    let [on_dead, on_living] = [
        cluster.name_on(0, "dead-").await,
        cluster.name_on(1, "living-").await,
    ];
    let free = cluster.name_on(0, "free-").await;
    let lost = renewed(&on_dead).await.unwrap();
    let kept = renewed(&on_living).await.unwrap();
    // A waiting client is granted, at the latest when the lease of the unreachable holder ends.
    let rival = LockClient::new(store(&cluster).await);
    let waiting = tokio::spawn(rival.lock(&on_dead).wait(LIMIT).acquire());
    eventually("it listens", LIMIT, async || {
        !cluster.pubsub_channels(&on_dead).await.is_empty()
    })
    .await;
    let slot = cluster.slot(&free).await;

    cluster.nodes[0].kill9();
    // No request hangs: the server is gone, and the other two serve.
    let asked = Instant::now();
    let refused = locks.lock(&free).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable(_)), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_secs(5));
    let any = locks.lock_any([free.as_str(), "anywhere-1", "anywhere-2", "anywhere-3"]);
    any.wait(LIMIT).await.unwrap().release().await.unwrap();

    eventually("a replica takes over", LIMIT, async || {
        cluster.serves(3, slot).await
    })
    .await;
    eventually("its locks are there again", LIMIT, async || {
        locks.lock(&free).wait(LIMIT).await?.release().await
    })
    .await;
    assert!(!kept.is_lost());
    kept.release().await.unwrap();
    // The replica had the hold: it is still the same or has expired, but there are never two.
    let released = lost.release().await;
    assert!(
        matches!(released, Ok(()) | Err(LockError::Lost)),
        "{released:?}"
    );
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // The server returns as a replica, without its old data.
    cluster.nodes[0].restart().await;
    for name in [&on_dead, &on_living, &free] {
        let guard = locks.lock(name).wait(LIMIT).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_that_takes_over_is_counted_as_a_failover() {
    let mut cluster = RedisCluster::start_with(&[("cluster-node-timeout", "3000")]).await;
    let mut bystander = Peer::start("bystander");
    bystander.tell(format!("cluster {}", cluster.urls().join(",")));
    assert_eq!(bystander.hear().await, "ready");
    cluster.nodes[0].kill9();
    assert_eq!(seen_by(&mut bystander).await, "cluster 1");
}

/// No replica takes over. Holders of locks on other servers keep them and are confirmed.
#[tokio::test]
async fn a_part_that_is_down_ends_no_other_locks() {
    const SHORT: Duration = Duration::from_secs(3);
    let mut cluster = in_parts("3000").await;
    let locks = LockClient::new(store(&cluster).await);
    let owner = Owner::new();
    let mut guards = Vec::new();
    for node in [0, 1, 1, 2] {
        let name = cluster.name_on(node, "part-").await;
        let request = locks.lock(&name).lease(Lease::Renewed(SHORT)).owner(&owner);
        guards.push(request.await.unwrap());
    }
    for node in [0, 3] {
        cluster.nodes[node].kill9();
    }
    // The renewals of all four are due together, several times.
    tokio::time::sleep(SHORT * 3).await;
    let mut guards = guards.into_iter();
    let gone = guards.next().unwrap();
    assert!(gone.is_lost());
    // The question about it fails, and does not delay another question.
    let asking = tokio::spawn(gone.release());
    for guard in guards {
        assert!(!guard.is_lost());
        let confirmed = tokio::time::timeout(LIMIT, guard.release()).await;
        confirmed.expect("at once").unwrap();
    }
    assert!(asking.await.unwrap().is_err());
}

/// Every request for its locks finds that it is down. All processes ask the others then.
#[tokio::test]
async fn servers_are_asked_seldom_about_one_that_is_down() {
    let mut cluster = in_parts("3000").await;
    let locks = LockClient::new(store(&cluster).await);
    let name = cluster.name_on(0, "down-").await;
    for node in [0, 3] {
        cluster.nodes[node].kill9();
    }
    let questions = async || {
        let mut questions = 0;
        for node in [1, 2] {
            let stats: String = cluster.nodes[node].ask(&["INFO", "commandstats"]).await;
            let lines = stats.lines().filter(|line| line.contains("cluster"));
            let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next());
            questions += calls
                .map(|calls| calls.parse::<u32>().unwrap())
                .sum::<u32>();
        }
        questions
    };
    let before = questions().await;
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let refused = locks.lock(&name).wait(Duration::ZERO).await;
        assert!(refused.is_err());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Pauses of 50, 100, 200, 400 and 800 ms, then of a second; each time two servers get two questions.
    let asked = questions().await - before;
    assert!((1..=80).contains(&asked), "{asked}");
}

/// Long enough on a busy machine.
const TIMEOUT: (&str, &str) = ("cluster-node-timeout", "30000");

/// At its connection limit, a server answers the password with that.
fn with_password() -> Builder {
    RedisServer::builder()
        .password("secret")
        .config("masterauth", "secret")
}

/// S1, L6. The server has no room for the connection that renews, and the others to it are up.
#[tokio::test]
async fn a_hold_is_kept_when_its_server_takes_no_more_connections() {
    let cluster = RedisCluster::start_like(with_password(), &[TIMEOUT]).await;
    let locks = LockClient::new(store(&cluster).await);
    let name = cluster.name_on(0, "full-").await;
    let request = locks.lock(&name).lease(Lease::Renewed(LEASE));
    let guard = request.await.unwrap();
    let limit = ["CONFIG", "SET", "maxclients", "1"];
    cluster.nodes[0].ask::<()>(&limit).await;
    tokio::time::sleep(LEASE * 2).await;
    assert!(!guard.is_lost(), "it is not renewed");
    guard.release().await.unwrap();
}

/// S1, L6. The same, while one of two keys with a common script has moved.
#[tokio::test]
async fn holds_of_a_moving_slot_are_kept_when_their_server_takes_no_more_connections() {
    let cluster = RedisCluster::start_like(with_password(), &[TIMEOUT]).await;
    let store = store(&cluster).await;
    let name = cluster.name_on(0, "full-").await;
    let slot = cluster.slot(&name).await;
    let held = ["a", "b"].map(|part| attempt(format!("{{{name}}}{part}"), LockMode::Reentrant));
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    cluster.begin_move(slot, 0, 1).await;
    cluster.move_key(held[0].hold.key.as_str(), 0, 1).await;
    let limit = ["CONFIG", "SET", "maxclients", "1"];
    cluster.nodes[0].ask::<()>(&limit).await;
    let renewals = held.map(|one| Renewal::new(one.hold, LEASE));
    let renewed = store.renew(&renewals).await;
    assert_eq!(renewed.expect("it answers"), [HoldStatus::Held; 2]);
}

/// A server neither answers nor closes its connections: first the other servers give it up, then its clients.
#[tokio::test]
async fn a_server_hangs_and_its_replica_takes_over() {
    let mut cluster = RedisCluster::start_with(&[("cluster-node-timeout", "3000")]).await;
    let store = RedisStore::cluster(cluster.urls()).response_timeout(Duration::from_millis(500));
    let locks = LockClient::new(store.connect().await.unwrap());
    let name = cluster.name_on(0, "hangs-").await;
    let slot = cluster.slot(&name).await;
    locks.lock(&name).await.unwrap().release().await.unwrap();

    cluster.nodes[0].pause();
    let refused = locks.lock(&name).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable(_)), "{refused:?}");
    eventually("a replica takes over", LIMIT, async || {
        cluster.serves(3, slot).await
    })
    .await;
    let guard = eventually("its locks are there again", LIMIT, async || {
        locks.lock(&name).wait(LIMIT).await
    })
    .await;
    // The server returns and acts as a master for a short time, but no client asks it any more.
    cluster.nodes[0].resume();
    let rival = LockClient::new(super::store(&cluster).await);
    eventually("it knows its place", LIMIT, async || {
        !cluster.serves(0, slot).await
    })
    .await;
    let taken = rival.lock(&name).wait(Duration::ZERO).await;
    assert!(matches!(taken, Err(LockError::Busy { .. })), "{taken:?}");
    guard.release().await.unwrap();
}

/// A store that knows nothing yet asks about its own key alone.
#[tokio::test]
async fn a_server_that_hangs_delays_no_first_lock_on_another() {
    let mut cluster = RedisCluster::start_with(&[TIMEOUT]).await;
    let name = cluster.name_on(1, "first-").await;
    cluster.nodes[0].pause();
    let store = RedisStore::cluster(cluster.urls()).connect_lazy().unwrap();
    let locks = LockClient::new(store);
    let began = Instant::now();
    let guard = locks.lock(&name).await.unwrap();
    let took = began.elapsed();
    // A connection may take five seconds.
    assert!(took < Duration::from_secs(2), "{took:?}");
    guard.release().await.unwrap();
}

/// A replica without the hold takes over: the worst failure of a Cluster.
#[tokio::test]
async fn a_hold_that_a_failover_forgets_is_reported_lost() {
    let cluster = RedisCluster::start_with(&[("cluster-node-timeout", "30000")]).await;
    let locks = LockClient::new(store(&cluster).await);
    let name = cluster.name_on(0, "forgotten-").await;
    let slot = cluster.slot(&name).await;
    // Connected before the link to the replica is cut.
    let rival = LockClient::new(store(&cluster).await);
    for client in [&locks, &rival] {
        client.lock(&name).await.unwrap().release().await.unwrap();
    }
    cluster.cut_off_replica(0).await;

    let guard = locks
        .lock(&name)
        .lease(Lease::Renewed(LEASE))
        .await
        .unwrap();
    let taken = rival.lock(&name).wait(Duration::ZERO).await;
    assert!(matches!(taken, Err(LockError::Busy { .. })));
    replace_first_master(&cluster, slot).await;
    assert!(
        cluster.keys_on(3, &name).await.is_empty(),
        "the write was not lost"
    );

    // Lease exclusion is broken, as documented: another owner gets the lock …
    let other = rival.lock(&name).wait(LIMIT).await.unwrap();
    // … and the previous holder learns of the loss before the end of its lease, and gets no confirmation.
    tokio::time::timeout(LEASE, guard.lost())
        .await
        .expect("an answer");
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    other.release().await.unwrap();
}

#[tokio::test]
async fn what_a_failover_would_forget_is_not_granted_where_replicas_have_to_acknowledge() {
    let cluster = RedisCluster::start_with(&[("cluster-node-timeout", "30000")]).await;
    let store = RedisStore::cluster(cluster.urls()).replicas(1);
    let locks = LockClient::new(store.connect().await.unwrap());
    let name = cluster.name_on(0, "acknowledged-").await;
    let guard = locks.lock(&name).await.unwrap();
    assert!(cluster.keys_on(3, &name).await.contains(&name));
    cluster.cut_off_replica(0).await;
    let unconfirmed = guard.release().await.unwrap_err();
    assert!(is_unacknowledged(&unconfirmed), "{unconfirmed:?}");
    let refused = locks.lock(&name).wait(Duration::ZERO).await.unwrap_err();
    assert!(is_unacknowledged(&refused), "{refused:?}");
    eventually("it is taken back", LIMIT, async || {
        cluster.keys_on(0, &name).await.is_empty()
    })
    .await;
    let elsewhere = cluster.name_on(1, "acknowledged-").await;
    locks
        .lock(&elsewhere)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Makes the replica of the first master take over, without the master's consent.
async fn replace_first_master(cluster: &RedisCluster, slot: u16) {
    cluster.nodes[3]
        .ask::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"])
        .await;
    eventually("the replica has taken over", LIMIT, async || {
        cluster.serves(3, slot).await && !cluster.serves(0, slot).await
    })
    .await;
}

fn is_unacknowledged(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable(error) | LockError::Unconfirmed(error) if error.kind() == StoreErrorKind::Unacknowledged)
}

#[tokio::test]
async fn a_request_whose_hold_a_failover_forgets_is_500() {
    let cluster = RedisCluster::start_with(&[("cluster-node-timeout", "30000")]).await;
    let locks = LockClient::new(store(&cluster).await);
    let name = cluster.name_on(0, "response-").await;
    let slot = cluster.slot(&name).await;
    locks.lock(&name).await.unwrap().release().await.unwrap();
    cluster.cut_off_replica(0).await;

    static ENTERED: Notify = Notify::const_new();
    static GO_ON: Notify = Notify::const_new();
    let handler = async || {
        ENTERED.notify_one();
        GO_ON.notified().await;
        "done"
    };
    let layer = DistributedLockLayer::new(locks)
        .key(move |_: &Parts| LockKey::new(name.as_str()))
        .mode(LockMode::Reentrant)
        .on_lost(OnLost::Continue);
    let app: Router = Router::new().route("/", put(handler)).layer(layer);
    let request = || {
        let request = Request::put("/");
        request.body(Body::empty()).unwrap()
    };
    let answer = tokio::spawn(app.clone().oneshot(request()));
    ENTERED.notified().await;
    replace_first_master(&cluster, slot).await;
    GO_ON.notify_one();
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);

    // The next request goes to the server that has the slot now.
    GO_ON.notify_one();
    let answer = app.oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

/// A layer that has found one server down asks before it reads a body, and then about the keys of the request alone.
#[tokio::test]
async fn a_layer_serves_the_keys_of_the_servers_that_answer() {
    let mut cluster = in_parts("60000").await;
    let [dead, living] = [
        cluster.name_on(0, "dead-").await,
        cluster.name_on(1, "living-").await,
    ];
    let layer = DistributedLockLayer::new(store(&cluster).await)
        .key(|parts: &Parts| LockKey::new(&parts.uri.path()[1..]))
        .mode(LockMode::Reentrant)
        .wait(Duration::from_secs(2));
    let app: Router = Router::new()
        .route("/{name}", put(async |_body: String| "done"))
        .layer(layer);
    let asked = async |name: &str| {
        let request = Request::put(format!("/{name}")).body(Body::from("text"));
        let answer = app.clone().oneshot(request.unwrap()).await.unwrap();
        answer.status()
    };
    assert_eq!(asked(&dead).await, StatusCode::OK);
    cluster.nodes[0].kill9();
    for _ in 0..3 {
        assert_eq!(asked(&dead).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(asked(&living).await, StatusCode::OK);
    }
}

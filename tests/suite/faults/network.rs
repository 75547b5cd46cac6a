//! A network that is slow, silent, or ends connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, LockRequest, RedisStore};

use super::{
    MODES, PATIENT, SOON, client, granted, hasty_client, outcome, rival, waits, works_again,
};
use crate::support::{Ending, Proxy, RedisSentinels, RedisServer, eventually};

/// S1, S5. Calls that overtake each other never let two holders in.
#[tokio::test]
async fn holders_never_overlap_on_a_slow_and_uneven_network() {
    let server = RedisServer::start().await;
    let proxies = [
        Proxy::in_front_of(&server).await,
        Proxy::in_front_of(&server).await,
    ];
    let clients = [
        client(proxies[0].url()).await,
        client(proxies[1].url()).await,
    ];
    proxies[0].delay(Duration::from_millis(30));
    let began = Instant::now();
    let guard = clients[0].lock("one").await.expect("free");
    assert!(
        began.elapsed() >= Duration::from_millis(60),
        "there and back"
    );
    guard.release().await.expect("held");

    let mut working = Vec::new();
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let inside = Arc::new(AtomicUsize::new(0));
        for locks in clients.iter().cycle().take(4) {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            working.push(tokio::spawn(async move {
                for _ in 0..8 {
                    let asking = locks.lock(mode.as_str()).mode(mode).wait(PATIENT);
                    let guard = asking.await.expect("granted");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{mode:?}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.expect("confirmed");
                }
            }));
        }
    }
    while !working.iter().all(|task| task.is_finished()) {
        for proxy in &proxies {
            proxy
                .requests
                .delay(Duration::from_millis(fastrand::u64(0..12)));
            proxy
                .replies
                .delay(Duration::from_millis(fastrand::u64(0..12)));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for task in working {
        outcome(task).await;
    }
    for proxy in &proxies {
        proxy.delay(Duration::ZERO);
    }
    works_again(&server, &[&clients[0], &clients[1]]).await;
}

/// S1, S2, S3, S4, S5. The holder behind the partition knows that its lock is lost before another client gets it, and its
/// delayed requests do not harm the new holder.
#[tokio::test]
async fn a_holder_behind_a_partition_loses_its_lock_before_another_is_granted() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let (cut_off, other) = (hasty_client(proxy.url()).await, client(server.url()).await);
    let mut guards = Vec::new();
    for mode in MODES {
        let asking = cut_off.lock(mode.as_str()).mode(mode);
        let lease = Lease::Renewed(Duration::from_millis(1500));
        guards.push(asking.lease(lease).await.expect("free"));
    }
    proxy.requests.hold();
    proxy.replies.hold();
    let waiting = MODES.map(|mode| {
        let asking = other.lock(mode.as_str()).mode(rival(mode)).wait(PATIENT);
        tokio::spawn(asking.acquire())
    });
    // A renewal is under way and never arrives.
    assert!(proxy.requests.until_caught().await.held > 0);
    let mut next = Vec::new();
    for (guard, waiting) in guards.iter().zip(waiting) {
        let next_one = granted(waiting).await;
        assert!(guard.is_lost(), "{next_one:?} was let in too early");
        next.push(next_one);
    }
    proxy.requests.release();
    proxy.replies.release();
    for guard in guards {
        let released = guard.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    }
    for guard in next {
        guard.release().await.expect("no other client holds it");
    }
    works_again(&server, &[&cut_off, &other]).await;
}

/// The ways in which a connection ends.
const ENDS: [&str; 4] = ["reset", "close", "no more requests", "no more replies"];

/// Ends the connections while the answer to `asking` is on them.
async fn ends_with_an_answer(proxy: &Proxy, end: &str, asking: LockRequest) {
    proxy.replies.hold();
    let asking = tokio::spawn(asking.wait(PATIENT).acquire());
    assert!(proxy.replies.until_caught().await.held > 0);
    match end {
        "reset" => assert!(proxy.cut(Ending::Reset).await > 0),
        "close" => assert!(proxy.cut(Ending::Close).await > 0),
        "no more requests" => proxy.requests.half_close(),
        _ => proxy.replies.half_close(),
    }
    proxy.replies.release();
    match outcome(asking).await {
        Ok(guard) => guard.release().await.expect("held"),
        // The second attempt failed as well.
        Err(LockError::Unavailable(_)) => {}
        Err(error) => panic!("{end}: {error}"),
    }
}

/// S9, L4, L6, L7. A connection ends, in any way, with the answer to an acquisition on it: nothing of the attempt is left.
#[tokio::test]
async fn a_connection_that_ends_with_a_grant_on_it_leaves_no_lock() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let locks = hasty_client(proxy.url()).await;
    for end in ENDS {
        for mode in MODES {
            let asking = locks.lock("n").mode(mode);
            let warm = asking.clone().wait(PATIENT).await;
            warm.expect("free").release().await.expect("held");
            ends_with_an_answer(&proxy, end, asking).await;
            works_again(&server, &[&locks]).await;
        }
    }
}

/// S8, S9, L7. The same for several keys, all or any.
#[tokio::test]
async fn a_connection_that_ends_with_several_grants_on_it_leaves_none() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let locks = hasty_client(proxy.url()).await;
    for end in ENDS {
        let mixed = MODES.map(|mode| (mode.as_str(), mode));
        let any = MODES.map(|mode| locks.lock_any(["x", "y"]).mode(mode));
        for asking in any.into_iter().chain([locks.lock_all(mixed)]) {
            let warm = asking.clone().wait(PATIENT).await;
            warm.expect("free").release().await.expect("held");
            ends_with_an_answer(&proxy, end, asking).await;
            works_again(&server, &[&locks]).await;
        }
    }
}

/// S9, L4, L7. An acquisition that the network delays fails when the wait is over, and is not granted when it arrives.
#[tokio::test]
async fn a_request_delivered_after_its_wait_is_not_granted() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let (late, other) = (hasty_client(proxy.url()).await, client(server.url()).await);
    for mode in MODES {
        proxy.requests.hold();
        let began = Instant::now();
        let wait = Duration::from_millis(900);
        let asked = late.lock("n").mode(mode).wait(wait).await;
        assert!(matches!(asked, Err(LockError::Unavailable(_))), "{asked:?}");
        assert!(proxy.requests.tally().held > 0, "it is on its way");
        assert!(began.elapsed() < SOON);
        assert!(!server.dump().await.contains_key("n"));
        proxy.requests.release();
        // Sooner than in the 30 s for which the late one has asked.
        let next = other.lock("n").mode(rival(mode)).wait(SOON).await;
        next.expect("free").release().await.expect("held");
        works_again(&server, &[&late, &other]).await;
    }
}

/// L2. Only the connection for wake-ups is silent: waiting requests are granted by polling.
#[tokio::test]
async fn a_wake_up_that_the_network_keeps_costs_no_more_than_a_poll() {
    let sentinels = RedisSentinels::start().await;
    let server = sentinels.replicated.master();
    let proxy = Proxy::in_front_of(server).await;
    // The connections for commands lead to the server, and later ones to the proxy.
    let (is_open, through) = (Arc::new(AtomicBool::new(false)), proxy.port());
    let opened = is_open.clone();
    let deaf = RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME).address_map(
        move |host, port| match opened.load(Ordering::SeqCst) {
            true => ("127.0.0.1".to_owned(), through),
            false => (host.to_owned(), port),
        },
    );
    let deaf = LockClient::new(deaf.connect().await.expect("Redis is there"));
    is_open.store(true, Ordering::SeqCst);
    let holder = client(server.url()).await;
    for mode in MODES {
        let guard = holder.lock("n").mode(mode).await.expect("free");
        let waiting = waits(server, &deaf, "n", rival(mode)).await;
        proxy.replies.hold();
        guard.release().await.expect("held");
        assert!(proxy.replies.until_caught().await.held > 0, "{mode:?}");
        let next = granted(waiting).await;
        proxy.replies.release();
        next.release().await.expect("held");
        works_again(server, &[&holder, &deaf]).await;
    }
}

/// L6. The network silences the connections, and new ones work. When one silenced connection is used, all of them are found
/// before a command times out.
#[tokio::test]
async fn silent_connections_are_replaced_before_a_command_times_out() {
    const RESPONSE: Duration = Duration::from_secs(12);
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::builder(proxy.url()).response_timeout(RESPONSE);
    let locks = LockClient::new(store.connect().await.expect("Redis is there"));
    let other = client(server.url()).await;

    // Two for commands, one that renews, one that listens.
    let renewed = locks
        .lock("renewed")
        .lease(Lease::Renewed(Duration::from_secs(1)));
    let renewed = renewed.await.expect("free");
    eventually("it is renewed", SOON, async || proxy.connections() == 3).await;
    renewed.release().await.expect("held");
    let held = locks.lock("held").await.expect("free");
    let taken = other.lock("taken").await.expect("free");
    let waiting = waits(&server, &locks, "taken", LockMode::Reentrant).await;
    assert_eq!(proxy.connections(), 4);

    let before = proxy.accepted();
    assert_eq!(proxy.silence(), 4);
    let began = Instant::now();
    let guard = locks.lock("free").wait(PATIENT).await.expect("free");
    assert!(
        began.elapsed() < RESPONSE,
        "it has not waited for an answer"
    );
    guard.release().await.expect("held");
    eventually("all four are replaced", SOON, async || {
        proxy.accepted() >= before + 4
    })
    .await;
    assert!(
        began.elapsed() < RESPONSE,
        "none of them has waited for an answer"
    );
    taken.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    held.release().await.expect("held all the time");
    // The server still has the silenced connections.
    proxy.cut(Ending::Close).await;
    works_again(&server, &[&locks, &other]).await;
}

/// L6. The same, in terms of the time limits: a command without an answer for a sixth of the response time-out starts the
/// probes, which take a third of it. With the default of three seconds, that is a second and a half.
#[tokio::test]
async fn silent_connections_are_replaced_within_half_of_the_response_time_out() {
    const RESPONSE: Duration = Duration::from_secs(3);
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::builder(proxy.url()).response_timeout(RESPONSE);
    let locks = LockClient::new(store.connect().await.expect("Redis is there"));
    works_again(&server, &[&locks]).await;

    assert!(proxy.silence() > 0);
    let clock = StoppedClock::stop();
    let asking = tokio::spawn(locks.lock("free").wait(PATIENT).acquire());
    clock.pass(RESPONSE / 6).await;
    clock.pass(RESPONSE / 3).await;
    // New connections take as long as the network does.
    let guard = asking.await.expect("no panic").expect("free");
    clock.start(RESPONSE / 2);
    guard.release().await.expect("held");
    proxy.cut(Ending::Close).await;
    works_again(&server, &[&locks]).await;
}

/// The clock of this test's runtime. It moves only by `pass`; the network does not wait for it.
struct StoppedClock {
    at: tokio::time::Instant,
    /// The clock stands still while a blocking task runs.
    _running: mpsc::Sender<()>,
}

impl StoppedClock {
    /// Timers fire with the next millisecond.
    const TICK: Duration = Duration::from_millis(1);

    fn stop() -> Self {
        let (running, ended) = mpsc::channel();
        tokio::task::spawn_blocking(move || ended.recv_timeout(PATIENT));
        tokio::time::pause();
        Self {
            at: tokio::time::Instant::now(),
            _running: running,
        }
    }

    /// Lets time pass, after every task has begun to wait for it.
    async fn pass(&self, time: Duration) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(time + Self::TICK).await;
    }

    /// The clock moves again. No more than `passed` has passed until now.
    fn start(self, passed: Duration) {
        let elapsed = self.at.elapsed();
        assert!(elapsed <= passed + 2 * Self::TICK, "it took {elapsed:?}");
        tokio::time::resume();
    }
}

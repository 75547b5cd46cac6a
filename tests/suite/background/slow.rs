//! Answers that come late.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::work::OnceError;
use tower_distributed_lock::{Lease, LockClient, LockError};

use super::wired::Wired;

/// How long each call takes.
const LATENCY: Duration = Duration::from_millis(60);

/// The lock is lost while the record is read.
#[tokio::test(start_paused = true)]
async fn once_says_that_work_was_not_started_under_a_lock_that_was_lost() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    store.slow(LATENCY);
    let once = locks.lock("1:k").lease(Lease::Fixed(LATENCY * 3 / 2));
    let work = async |_| -> Result<(), Infallible> { panic!("it must not run") };
    let lost = once.once(Duration::from_secs(60), work);
    let lost = lost.await;
    assert!(
        matches!(lost, Err(OnceError::NotStarted(LockError::Lost))),
        "{lost:?}"
    );
}

/// Permits come free together while many requests of a process wait. They do not ask for them one after the other.
#[tokio::test(start_paused = true)]
async fn free_permits_are_used_while_requests_wait() {
    const PERMITS: u32 = 16;
    const SECTIONS: u32 = 160;
    let latency = LATENCY / 6;
    let store = Wired::default();
    let (locks, other) = (
        LockClient::new(store.clone()),
        LockClient::new(store.inner()),
    );
    let all = (0..PERMITS).map(|_| other.lock("1:k").permits(PERMITS).acquire());
    let all = join_all(all).await;
    store.slow(latency);
    let section = || async {
        let guard = locks.lock("1:k").permits(PERMITS).await.expect("free");
        sleep(LATENCY).await;
        guard.release().await.expect("held");
    };
    let sections = join_all((0..SECTIONS).map(|_| section()));
    let free = async {
        sleep(LATENCY).await;
        drop(all);
        Instant::now()
    };
    let (_, began) = tokio::join!(sections, free);
    let took = began.elapsed();
    let least = (LATENCY + 2 * latency) * (SECTIONS / PERMITS);
    assert!(took < least * 3 / 2, "{took:?} instead of {least:?}");
    let calls = store.calls("acquire", 1).len() + store.calls("release", 1).len();
    let most = 4 * SECTIONS as usize;
    assert!(calls <= most, "{calls} questions for {SECTIONS} sections");
}

/// It dies after its first renewal: its lease then ends later than 30 s after another process has begun to wait.
#[tokio::test(start_paused = true)]
async fn a_job_runs_elsewhere_when_its_runner_dies_after_a_renewal() {
    let store = Wired::default();
    let day = Duration::from_secs(24 * 60 * 60);
    let dying = LockClient::new(store.clone());
    let runner = tokio::spawn(async move {
        let work = async |_| std::future::pending::<Result<u32, Infallible>>().await;
        dying.lock("1:nightly").once(day, work).await
    });
    sleep(Duration::from_secs(1)).await;
    let waiting = LockClient::new(store.inner());
    let other = tokio::spawn(async move {
        let work = async |_| Ok::<u32, Infallible>(17);
        waiting.lock("1:nightly").once(day, work).await
    });
    sleep(Duration::from_secs(11)).await;
    assert!(!store.calls("renew", 1).is_empty(), "it was renewed");
    store.cut(1);
    let done = other.await.expect("no panic").expect("it runs elsewhere");
    assert_eq!((done.value, done.replayed), (17, false));
    runner.abort();
}

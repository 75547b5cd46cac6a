//! The cases: what a store promises, as functions that panic where it does not keep it. The macro makes tests of them.
//! [`run`](super::run) runs one.

// What most of them need stands here: each file begins with `use super::*`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Barrier;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use super::KEY;
use super::critical_section::CriticalSection;
use super::harness::{Environment, Harness};
use super::process::{Process, rival};
use super::waiter::Waiter;
use tower_distributed_lock::store::WAITER_LIVENESS;
use tower_distributed_lock::{Lease, LockError, LockGuard, LockMode, LockRequest, Owner};

/// Asserts that a request or a release fails with this [`LockError`].
macro_rules! assert_err {
    ($answer:expr, $error:ident) => {
        let answer = $answer;
        let is_it = matches!(answer, Err(LockError::$error { .. }));
        assert!(is_it, "{answer:?}, and not {}", stringify!($error));
    };
}

pub mod any;
pub mod cancel;
pub mod contract;
pub mod crowd;
pub mod exclusion;
pub mod families;
pub mod fencing;
pub mod lease;
pub mod letting_go;
pub mod line;
pub mod loss;
pub mod minimum;
pub mod order;
pub mod permits;
pub mod phases;
pub mod reentry;
pub mod several;
pub mod shutdown;
pub mod unpolled;
pub mod waiting;

/// Asserts that a request which does not wait is refused.
async fn is_refused(request: LockRequest) {
    assert_err!(request.wait(Duration::ZERO).await, Busy);
}

/// Asserts that the request is refused when it has waited for so long.
async fn is_refused_after(env: &Harness, wait: Duration, request: LockRequest) {
    let asked = Instant::now();
    assert_err!(request.wait(wait).await, Busy);
    let waited = asked.elapsed();
    assert!(wait <= waited && waited < wait + env.prompt());
}

/// Lets requests wait until one more is refused because too many wait: two of them, or three if one asks the store. Returns
/// those that wait.
async fn until_overloaded(
    env: &Harness,
    request: &LockRequest,
    wait: impl AsyncFn(&Environment, LockRequest) -> Waiter,
) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    loop {
        assert!(waiters.len() <= 3, "no request is refused");
        match request.clone().wait(env.moment).await {
            Err(LockError::Overloaded) => break,
            Err(LockError::Busy { .. }) => waiters.push(wait(env, request.clone()).await),
            other => panic!("{other:?}"),
        }
    }
    assert_err!(request.clone().await, Overloaded);
    assert!(waiters.len() >= 2, "turned away too early");
    waiters
}

/// A task for each request. It makes the request so many times, and under each lock it works at the site for this time.
fn visits(
    site: &CriticalSection,
    times: usize,
    requests: impl IntoIterator<Item = (LockRequest, Duration)>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (request, work) in requests {
        let site = site.clone();
        tasks.spawn(async move {
            for _ in 0..times {
                let guard = request.clone().await.unwrap();
                site.work(guard.mode(), work).await;
                guard.release().await.unwrap();
            }
        });
    }
    tasks
}

/// Tasks that take the lock and hold it for a time, again and again: in each process one for each of the `works`.
fn busy<const N: usize>(
    processes: &[&Process],
    mode: LockMode,
    works: [Duration; N],
) -> JoinSet<()> {
    let requests = processes.iter().flat_map(|process| {
        let request = process.lock(KEY).mode(mode);
        works.map(|work| (request.clone(), work))
    });
    visits(&CriticalSection::default(), usize::MAX, requests)
}

/// Processes with so many tasks each ask for the lock continuously, until there were so many `grants`. Returns the smallest
/// share of a process.
async fn least_share<const N: usize>(env: &Harness, tasks: [usize; N], grants: usize) -> usize {
    let counts = Arc::new(tasks.map(|_| AtomicUsize::new(0)));
    let shares = |counts: &[AtomicUsize; N]| counts.each_ref().map(|n| n.load(Ordering::SeqCst));
    let begin = Arc::new(Barrier::new(tasks.iter().sum()));
    let mut working = JoinSet::new();
    for (process, tasks) in tasks.into_iter().enumerate() {
        let request = env.process().await.request();
        for _ in 0..tasks {
            let (request, counts, begin) = (request.clone(), counts.clone(), begin.clone());
            working.spawn(async move {
                // The first process must not have its share before the second one is made.
                begin.wait().await;
                while shares(&counts).iter().sum::<usize>() < grants {
                    let guard = request.clone().await.unwrap();
                    counts[process].fetch_add(1, Ordering::SeqCst);
                    // In memory there may be no other wait, and the other tasks would never run.
                    yield_now().await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    working.join_all().await;
    shares(&counts).into_iter().min().unwrap_or_default()
}

/// The request is granted within `limit`, and its lock released.
async fn granted_within(limit: Duration, request: LockRequest) {
    let asked = Instant::now();
    let guard = request.await.unwrap();
    let waited = asked.elapsed();
    assert!(waited < limit, "granted after {waited:?}");
    guard.release().await.unwrap();
}

/// The locks of requests, each granted before the next one asks.
async fn acquire_all(requests: impl IntoIterator<Item = LockRequest>) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for request in requests {
        guards.push(request.await.unwrap());
    }
    guards
}

/// Requests in tasks of their own. Their guards come out in the order in which they are granted.
fn crowd(requests: impl IntoIterator<Item = LockRequest>) -> UnboundedReceiver<LockGuard> {
    let (entered, entering) = unbounded_channel();
    for request in requests {
        let entered = entered.clone();
        tokio::spawn(async move { drop(entered.send(request.await.unwrap())) });
    }
    entering
}

/// How many questions the release of one of the holders causes, while all these requests wait. They are granted in the end.
async fn asked_at_a_release(
    env: &Harness,
    mut holders: Vec<LockGuard>,
    requests: impl IntoIterator<Item = LockRequest>,
) -> usize {
    let mut entering = crowd(requests);
    // All requests wait once no question is sent.
    let mut before = 0;
    env.until("all requests wait", async || {
        sleep(env.moment).await;
        let asked = env.asked().questions;
        std::mem::replace(&mut before, asked) == asked
    })
    .await;
    holders.pop().unwrap().release().await.unwrap();
    let first = timeout(env.prompt(), entering.recv()).await;
    let first = first.expect("one enters").unwrap();
    sleep(env.moment).await;
    let asked = env.asked().questions - before;
    drop((first, holders));
    while entering.recv().await.is_some() {}
    asked
}

/// Releases holds, one after the other.
async fn release_all(guards: impl IntoIterator<Item = LockGuard>) {
    for guard in guards {
        guard.release().await.unwrap();
    }
}

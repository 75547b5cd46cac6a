//! What a contended key costs the store, and when: a script answers in its place.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::LockClient;
use crate::error::LockError;
use crate::exploration::script::Script;
use crate::guard::LockGuard;
use crate::lock::Lease;
use crate::store::{Attempt, HoldStatus, Released};

mod failures;
mod runtimes;
mod turns;
mod withdrawals;

const LEASE: Duration = Duration::from_secs(30);

/// A request that waits in a task of its own.
type Waiting = JoinHandle<Result<LockGuard, LockError>>;

fn wait(locks: &LockClient, lease: Duration) -> Waiting {
    let request = locks.lock("k").lease(Lease::Fixed(lease));
    tokio::spawn(request.acquire())
}

/// A guard, and a request of the same process that waits for it.
async fn held_and_wanted() -> (Script, LockClient, LockGuard, Waiting) {
    let (mut script, locks) = Script::client(0);
    let request = locks.lock("k").lease(Lease::Fixed(LEASE));
    let guard = script.grant(request).await;
    let waiting = wait(&locks, LEASE);
    script.is_quiet(Duration::from_millis(50)).await;
    (script, locks, guard, waiting)
}

/// A request that another process keeps waiting. It listens.
async fn refused(script: &mut Script, locks: &LockClient) -> (Waiting, Attempt, watch::Sender<()>) {
    let waiting = wait(locks, LEASE);
    let (_, reply) = script.acquire().await;
    reply.refuse();
    let (_, reply) = script.subscribe().await;
    let signal = reply.listens();
    let (attempt, reply) = script.acquire().await;
    reply.refuse();
    (waiting, attempt, signal)
}

/// Releases a guard, which wakes so many in a store without a line.
async fn release(script: &mut Script, guard: LockGuard, notified: usize) {
    let released = tokio::spawn(guard.release());
    let (_, reply) = script.release().await;
    reply.send(Released::new(HoldStatus::Held, notified));
    released.await.expect("no panic").expect("it was held");
}

async fn guard(waiting: Waiting) -> LockGuard {
    waiting.await.expect("no panic").expect("it was granted")
}

//! Locks without HTTP: for jobs, consumers and scripts.
//!
//! ```text
//! $ cargo run --example without_http
//! lock:account:42 is held
//! nightly runs elsewhere already
//! the lock was lost: import is cut short
//! 2 readers at once
//! both are held, with token Some(FencingToken(…))
//! lock:stock:7:… is free
//! ```

use std::time::Duration;

use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, MemoryStore, Owner};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = LockClient::new(MemoryStore::new());

    // One at a time. `release` says whether the lock was held until then; dropping the guard releases, too.
    let guard = locks.lock("lock:account:42").await?;
    println!("{} is held", guard.key());
    guard.release().await?;

    // Only one of many processes runs the job at a time; the others do not wait. This does not run it once per period: clocks
    // differ, and a process that comes a moment later finds the lock free. Let the job record what it has done, by its date.
    let job = locks.lock("lock:nightly").wait(Duration::ZERO).await?;
    match locks.lock("lock:nightly").wait(Duration::ZERO).await {
        Err(LockError::Busy { .. }) => println!("nightly runs elsewhere already"),
        other => println!("unexpected: {other:?}"),
    }

    // Work that must stop when the lock is lost, on a lease that is not renewed.
    let lease = Lease::Fixed(Duration::from_millis(100));
    let short = locks.lock("lock:import").lease(lease).await?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(1)) => println!("imported"),
        () = short.lost() => println!("the lock was lost: import is cut short"),
    }

    // Readers share, writers exclude.
    let (a, b) = (
        locks.lock("lock:prices").mode(LockMode::Read),
        locks.lock("lock:prices").mode(LockMode::Read),
    );
    let readers = tokio::try_join!(a.acquire(), b.acquire())?;
    println!("{} readers at once", [&readers.0, &readers.1].len());

    // Several at once, in any order, without deadlock; and one of several, whichever is free.
    let both = locks
        .lock_all(["lock:account:2", "lock:account:1"])
        .fenced()
        .await?;
    println!("both are held, with token {:?}", both.fencing_token());
    let segment = locks
        .lock_any((0..10).map(|i| format!("lock:stock:7:{i}")))
        .await?;
    println!("{} is free", segment.key());

    // An owner may take a lock again that it holds.
    let owner = Owner::new();
    let outer = locks.lock("lock:order:7").owner(&owner).await?;
    let inner = locks.lock("lock:order:7").owner(&owner).await?;
    drop((job, readers, both, segment, inner, outer));
    locks.shutdown(Duration::from_secs(5)).await
}

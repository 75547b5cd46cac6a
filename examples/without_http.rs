//! Locks without HTTP: for jobs, consumers and scripts.
//!
//! ```text
//! $ cargo run --example without_http
//! lock:account:42 is held
//! reporting
//! the report of this tick runs elsewhere
//! bills: Ok(17)
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

    // One at a time. `release` returns whether the lock was held until then; dropping the guard also releases.
    let guard = locks.lock("lock:account:42").await?;
    println!("{} is held", guard.key());
    guard.release().await?;

    // Once per tick, in whichever process is first: for 50 s the others find the key taken, so clocks may differ by less.
    let tick = async || {
        let job = locks.lock("lock:report").wait(Duration::ZERO);
        job.run_at_least(Duration::from_secs(50), async |_| println!("reporting"))
            .await
    };
    tick().await?;
    if tick().await.is_err_and(|error| error.is_busy()) {
        println!("the report of this tick runs elsewhere");
    }

    // Once at all, under a name; a repeat gets the value.
    let bill = locks.lock("billing:2026-11-22");
    let day = Duration::from_secs(86_400);
    let bills = bill.once(day, async |_| Ok::<_, LockError>(17)).await;
    println!("bills: {:?}", bills.map(|bills| bills.value));

    // Work that must stop when the lock is lost, on a lease that is not renewed.
    let lease = Lease::Fixed(Duration::from_millis(100));
    let short = locks.lock("lock:import").lease(lease).await?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(1)) => println!("imported"),
        () = short.lost() => println!("the lock was lost: import is cut short"),
    }

    // Readers share, writers exclude.
    let prices = || locks.lock("lock:prices").mode(LockMode::Read).acquire();
    let readers = tokio::try_join!(prices(), prices())?;
    println!("{} readers at once", [&readers.0, &readers.1].len());

    // Several at once, in any order, without deadlock; and one of several, whichever is free.
    let both = locks.lock_all(["lock:account:2", "lock:account:1"]);
    let both = both.fenced().await?;
    println!("both are held, with token {:?}", both.fencing_token());
    let segments = (0..10).map(|i| format!("lock:stock:7:{i}"));
    let segment = locks.lock_any(segments).await?;
    println!("{} is free", segment.key());

    // An owner may take a lock again that it holds.
    let owner = Owner::new();
    let outer = locks.lock("lock:order:7").owner(&owner).await?;
    let inner = locks.lock("lock:order:7").owner(&owner).await?;
    drop((readers, both, segment, inner, outer));
    locks.shutdown(Duration::from_secs(5)).await
}

//! All operations of a store, for a user whose rights are to be enough.

use super::*;

async fn acquire(store: &RedisStore, attempt: &Attempt) -> Result<(), StoreError> {
    let answer = store.acquire(attempt).await?;
    assert!(matches!(answer, Outcome::Granted { .. }), "{attempt:?}");
    Ok(())
}

async fn refused(store: &RedisStore, attempt: &Attempt) -> Result<(), StoreError> {
    let answer = store.acquire(attempt).await?;
    assert!(matches!(answer, Outcome::Refused { .. }), "{attempt:?}");
    Ok(())
}

/// All operations of a store, on keys that begin with `prefix`.
pub(super) async fn everything(store: &RedisStore, prefix: &str) -> Result<(), StoreError> {
    exclusive(store, &name(prefix, "exclusive")).await?;
    fair(store, &name(prefix, "fair")).await?;
    read_write(store, &name(prefix, "read-write")).await?;
    permits(store, &name(prefix, "permits")).await?;
    several(store, prefix).await?;
    records(store, prefix).await?;
    // `LockClient::ping`.
    store.renew(&[]).await.map(drop)
}

/// A prefix may contain the begin of a hash tag.
fn name(prefix: &str, rest: &str) -> String {
    let end = if prefix.contains('{') { "}" } else { "" };
    format!("{prefix}{rest}{end}")
}

async fn exclusive(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let holder = fenced(attempt(key, LockMode::Reentrant), Fencing::default());
    one_after_the_other(store, &holder, &patient(key, LockMode::Reentrant)).await
}

/// The waiter gets the hold after the holder, renews it, and is withdrawn.
async fn one_after_the_other(
    store: &RedisStore,
    holder: &Attempt,
    waiter: &Attempt,
) -> Result<(), StoreError> {
    acquire(store, holder).await?;
    refused(store, waiter).await?;
    let mut wakeups = store.subscribe(waiter).await?;
    store.release(&holder.hold, None).await?;
    woken(&mut wakeups).await;
    acquire(store, waiter).await?;
    let renewal = Renewal::new(waiter.hold.clone(), LEASE);
    assert_eq!(store.renew(&[renewal]).await?, [HoldStatus::Held]);
    let holds = [waiter.hold.clone()];
    assert_eq!(store.check(&holds).await?, [HoldStatus::Held]);
    store.withdraw(waiter, true).await
}

async fn fair(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let [holder, first, second, third] = std::array::from_fn(|_| patient(key, LockMode::Fair));
    acquire(store, &holder).await?;
    for waiter in [&first, &second, &third] {
        refused(store, waiter).await?;
    }
    let mut wakeups = store.subscribe(&first).await?;
    store.withdraw(&second, true).await?;
    store.release(&holder.hold, None).await?;
    woken(&mut wakeups).await;
    acquire(store, &first).await?;
    store.release(&first.hold, None).await?;
    acquire(store, &third).await?;
    store.release(&third.hold, None).await.map(drop)
}

async fn read_write(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let [one, two] = [(); 2].map(|()| attempt(key, LockMode::Read));
    let [late, later] = [(); 2].map(|()| patient(key, LockMode::Read));
    let [writer, other] = [(); 2].map(|()| patient(key, LockMode::Write));
    acquire(store, &one).await?;
    acquire(store, &two).await?;
    refused(store, &writer).await?;
    refused(store, &other).await?;
    refused(store, &late).await?;
    let mut wakeups = store.subscribe(&writer).await?;
    store.release(&one.hold, None).await?;
    store.release(&two.hold, None).await?;
    woken(&mut wakeups).await;
    acquire(store, &writer).await?;
    refused(store, &late).await?;
    refused(store, &later).await?;
    store.release(&writer.hold, None).await?;
    acquire(store, &late).await?;
    store.withdraw(&other, true).await?;
    store.withdraw(&later, true).await?;
    store.release(&late.hold, None).await.map(drop)
}

async fn permits(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let holder = attempt(key, LockMode::permits(1));
    one_after_the_other(store, &holder, &patient(key, LockMode::permits(1))).await
}

async fn several(store: &RedisStore, prefix: &str) -> Result<(), StoreError> {
    let attempts = MODES.map(|mode| attempt(name(prefix, mode.as_str()), mode));
    store.acquire_several(&attempts, Want::All).await?;
    for attempt in &attempts {
        store.release(&attempt.hold, None).await?;
    }
    store.acquire_several(&attempts, Want::Any).await?;
    store.release(&attempts[0].hold, None).await.map(drop)
}

async fn records(store: &RedisStore, prefix: &str) -> Result<(), StoreError> {
    let record = Record::new("done", LEASE);
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let work = attempt(name(prefix, mode.as_str()), mode);
        acquire(store, &work).await?;
        store.release(&work.hold, Some(&record)).await?;
        assert!(store.record(&work.hold.key).await?.is_some());
    }
    Ok(())
}

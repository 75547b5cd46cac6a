//! Lost holds: promises S3, S5, S9.

use std::pin::pin;

use futures_util::future::select;

use super::*;
use tower_distributed_lock::LockHandle;
use tower_distributed_lock::client::LockClientBuilder;
use tower_distributed_lock::guard::Ended;

pub async fn a_stolen_hold_is_reported_lost(env: &Harness) {
    let lease = env.short_lease();
    let guard = env.here.request().lease(env.renewed()).await.unwrap();
    let handle = guard.handle();
    let stolen = Instant::now();
    env.steal().await;
    let lost = timeout(lease, guard.lost()).await;
    lost.expect("the next renewal notices");
    assert!(stolen.elapsed() < lease / 2 + env.prompt());
    assert!(guard.is_lost() && handle.is_lost());
    handle.lost().await;
    assert_err!(guard.release().await, Lost);
}

/// And no renewal creates the hold again.
pub async fn the_release_of_a_stolen_hold_is_not_confirmed(env: &Harness) {
    let guard = env.here.request().await.unwrap();
    env.steal().await;
    assert!(!env.is_taken().await);
    assert_err!(guard.release().await, Lost);
}

/// The hold has ended, although its guard still exists.
pub async fn a_lost_hold_blocks_no_request(env: &Harness) {
    let lost = env.here.request().lease(env.fixed()).await.unwrap();
    let waiter = env.waits(env.here.rival()).await;
    lost.lost().await;
    waiter.serve_promptly().await;
    for process in env.both() {
        for next in [process.request(), process.rival()] {
            let next = next.wait(Duration::ZERO).await.unwrap();
            next.release().await.unwrap();
        }
    }
    let next = env.here.request().await.unwrap();
    drop(lost);
    sleep(env.moment).await;
    next.release().await.unwrap();
}

/// An operator broke it. Its own process would learn of that at the next renewal, and this hold is never renewed.
pub async fn a_stolen_hold_blocks_no_waiter_of_its_process(env: &Harness) {
    let lease = Lease::Fixed(Duration::from_secs(60));
    let guard = env.here.request().lease(lease).await.unwrap();
    let waiter = env.waits(env.here.request()).await;
    env.steal().await;
    let granted = timeout(Duration::from_secs(5), waiter.granted()).await;
    granted
        .expect("the store is asked")
        .release()
        .await
        .unwrap();
    assert_err!(guard.release().await, Lost);
}

/// The release of a shared or handed-over hold asks the store whether it was held until then.
pub async fn the_release_of_a_stolen_shared_hold_is_not_confirmed(env: &Harness) {
    let asking = env.here.owned();
    let (outer, inner) = (asking.clone().await.unwrap(), asking.await.unwrap());
    env.steal().await;
    assert_err!(inner.release().await, Lost);
    assert!(outer.is_lost());
    assert_err!(outer.release().await, Lost);
}

pub async fn a_stolen_hold_that_is_handed_over_is_lost(env: &Harness) {
    // The hold is handed over, however long the theft takes.
    let patient = |builder: LockClientBuilder| builder.handover_time(Duration::from_secs(3600));
    let process = env.process_with(patient).await;
    let first = process.request().await.unwrap();
    let second = env.waits(process.request()).await;
    env.steal().await;
    assert_err!(first.release().await, Lost);
    let second = second.granted().await;
    assert!(second.is_lost());
    assert_err!(second.release().await, Lost);
}

pub async fn a_released_lock_is_not_reported_lost(env: &Harness) {
    let asking = [KEY, "dropped"].map(|key| env.here.on(key).lease(env.fixed()));
    let mut guards = acquire_all(asking).await;
    let handles = [guards[0].handle(), guards[1].handle()];
    guards.remove(0).release().await.unwrap();
    drop(guards);
    let (one, other) = (pin!(handles[0].lost()), pin!(handles[1].lost()));
    let lost = timeout(env.short_lease() * 3 / 2, select(one, other)).await;
    assert!(lost.is_err(), "called lost");
    assert!(!handles.iter().any(LockHandle::is_lost));
}

/// A handle's observation ends with its guard, even if others still share the hold.
pub async fn a_released_share_is_not_lost_with_the_hold(env: &Harness) {
    let asking = env.here.owned().lease(env.renewed());
    let outer = asking.clone().await.unwrap();
    let (inner, dropped) = (asking.clone().await.unwrap(), asking.await.unwrap());
    let handles = [inner.handle(), dropped.handle()];
    let waiting = handles
        .clone()
        .map(|handle| tokio::spawn(async move { handle.ended().await }));
    inner.release().await.unwrap();
    drop(dropped);
    for ended in waiting {
        let ended = timeout(env.prompt(), ended).await.expect("it has ended");
        assert_eq!(ended.unwrap(), Ended::Released);
    }
    env.steal().await;
    outer.lost().await;
    assert_eq!(outer.handle().ended().await, Ended::Lost);
    for handle in handles {
        assert!(!handle.is_lost());
        assert_eq!(handle.ended().await, Ended::Released);
    }
    assert_err!(outer.release().await, Lost);
}

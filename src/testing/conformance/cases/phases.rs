//! Readers and writers: promise S7, and no writer or reader starves.

use super::*;
use crate::{LockClientBuilder, LockKey};
use LockMode::{Read, Write};

pub async fn readers_share_the_lock(env: &Env, mode: LockMode) {
    let site = Site::default();
    let clients = [env.client().await, env.client().await];
    let reading = |locks: &LockClient| (locks.lock(KEY).mode(mode), env.moment * 4);
    let first = visits(&site, 1, clients.iter().map(reading));
    let joining = visits(&site, 1, clients.iter().map(reading));
    sleep(env.moment).await;
    let too_late_to_join = visits(&site, 1, clients.iter().map(reading));
    for readers in [first, joining, too_late_to_join] {
        readers.join_all().await;
    }
    assert_eq!(site.most_holders(), 6);
}

pub async fn a_new_reader_waits_behind_a_waiting_writer(env: &Env, mode: LockMode) {
    let (here, elsewhere) = (env.client().await, env.client().await);
    let reader = here.lock(KEY).mode(Read).await.unwrap();
    sleep(env.moment).await; // The time in which others join without asking the store is over.
    let writer = Waiter::queue(env, elsewhere.lock(KEY).mode(mode)).await;
    for locks in [&here, &elsewhere, &env.client().await] {
        assert_err!(locks.lock(KEY).mode(Read).wait(Duration::ZERO).await, Busy);
    }
    let newcomer = env.waiter(Read).await;
    reader.release().await.unwrap();
    writer.promptly().await.release().await.unwrap();
    newcomer.promptly().await.release().await.unwrap();
}

/// Readers that waited for it are granted beside the reader that holds.
pub async fn a_cancelled_writer_blocks_no_readers(env: &Env, mode: LockMode) {
    let (locks, reader) = env.held_here(Read).await;
    sleep(env.moment).await; // The time in which others join without asking the store is over.
    let writer = env.waiter(mode).await;
    let here = Waiter::queue(env, locks.lock(KEY).mode(Read)).await;
    let elsewhere = env.waiter(Read).await;
    writer.cancel().await;
    here.promptly().await.release().await.unwrap();
    elsewhere.promptly().await.release().await.unwrap();
    reader.release().await.unwrap();
}

pub async fn a_frozen_writer_blocks_readers_for_seconds(env: &Env, mode: LockMode) {
    let reader = env.held_elsewhere(KEY, Read).await;
    let frozen = env.frozen(mode).await;
    is_granted_past_the_frozen(env, Read).await;
    reader.release().await.unwrap();
    frozen.thaw().serve().await;
}

pub async fn a_frozen_reader_blocks_writers_for_seconds(env: &Env, mode: LockMode) {
    let writer = env.held_elsewhere(KEY, Write).await;
    let frozen = env.frozen(mode).await;
    writer.release().await.unwrap();
    is_granted_past_the_frozen(env, Write).await;
    frozen.thaw().serve().await;
}

async fn is_granted_past_the_frozen(env: &Env, mode: LockMode) {
    let next = env.request(mode).await;
    let next = next.wait(WAITER_LIVENESS + Duration::from_secs(2)).await;
    next.unwrap().release().await.unwrap();
}

/// The writers and the reader wait in one process or in two. The writers' process learns of a reader of another process
/// only when it asks the store, which it does in the end.
pub async fn a_writer_does_not_hand_over_past_waiting_readers(env: &Env, mode: LockMode) {
    let here = env.client_with(|builder| builder.handovers(0)).await;
    let elsewhere = env.client().await;
    for (writers, readers) in [(&here, &here), (&here, &elsewhere)] {
        let first = writers.lock(KEY).mode(Write).await.unwrap();
        let second = Waiter::queue(env, writers.lock(KEY).mode(Write)).await;
        let third = Waiter::queue(env, elsewhere.lock(KEY).mode(Write)).await;
        let reader = Waiter::queue(env, readers.lock(KEY).mode(mode)).await;
        first.release().await.unwrap();
        let reader = reader.promptly().await;
        second.keeps_waiting(env).await;
        third.keeps_waiting(env).await;
        reader.release().await.unwrap();
        tokio::join!(second.serve(), third.serve());
    }
}

pub async fn every_waiting_reader_is_granted_after_a_write(env: &Env, mode: LockMode) {
    let (here, elsewhere) = (env.client().await, env.client().await);
    let writer = here.lock(KEY).mode(Write).await.unwrap();
    let clients = [&here, &elsewhere, &env.client().await];
    let readers = clients.iter().flat_map(|locks| {
        let leases = [30, 30, 40].map(|lease| Lease::Renewed(Duration::from_secs(lease)));
        leases.map(|lease| locks.lock(KEY).mode(mode).lease(lease))
    });
    let readers = Waiter::queue_all(env, readers).await;
    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.promptly().await);
    }
    release_all(guards).await;
}

pub async fn a_writer_is_granted_among_readers(env: &Env, mode: LockMode) {
    is_granted_among(env, Read, mode).await;
}

pub async fn a_reader_is_granted_among_writers(env: &Env, mode: LockMode) {
    is_granted_among(env, Write, mode).await;
}

/// Six requests work without a pause, in two clients; another request is still granted repeatedly.
async fn is_granted_among(env: &Env, crowd: LockMode, alone: LockMode) {
    let clients = [env.client().await, env.client().await];
    let mut working = busy(&clients, crowd, &[1, 2, 3].map(|n| env.moment / 4 * n));
    for locks in [env.client().await, env.client().await] {
        for _ in 0..4 {
            granted_within(env.prompt() * 2, locks.lock(KEY).mode(alone)).await;
        }
    }
    working.shutdown().await;
}

pub async fn an_upgrade_is_refused_at_once(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let reading = asking.clone().mode(Read).await.unwrap();
    let asked = Instant::now();
    assert_err!(asking.clone().await, Upgrade);
    assert!(asked.elapsed() < env.prompt());
    reading.release().await.unwrap();
    asking.await.unwrap().release().await.unwrap();
}

pub async fn a_writer_reads_under_its_own_write(env: &Env, mode: LockMode) {
    let asking = env.owned(Read).await;
    let writing = asking.clone().mode(mode).await.unwrap();
    let (one, two) = tokio::join!(asking.clone().acquire(), asking.clone().acquire());
    one.unwrap().release().await.unwrap();
    two.unwrap().release().await.unwrap();
    let reading = asking.wait(Duration::ZERO).await.unwrap();
    assert!(env.is_taken(Read).await);
    reading.release().await.unwrap();
    assert!(env.is_taken(Read).await);
    writing.release().await.unwrap();
    assert!(!env.is_taken(mode).await);
}

/// In the store, all of them have the hold id of the write.
pub async fn the_end_of_a_nested_read_does_not_release_the_next(env: &Env, mode: LockMode) {
    let asking = env.owned(Read).await;
    let writing = asking.clone().mode(mode).await.unwrap();
    for micros in (0..4000).step_by(250) {
        drop(asking.clone().await.unwrap());
        let after_a_drop = asking.clone().await.unwrap();
        sleep(Duration::from_micros(micros)).await;
        after_a_drop.release().await.unwrap();

        let cancelled = asking.clone().into_future();
        drop(timeout(Duration::from_micros(micros), cancelled).await);
        let after_a_cancellation = asking.clone().await.unwrap();
        sleep(Duration::from_micros(4000 - micros)).await;
        after_a_cancellation.release().await.unwrap();
    }
    writing.release().await.unwrap();
}

/// A client whose owner has both.
async fn read_under_a_write(env: &Env, mode: LockMode) -> (LockClient, LockGuard, LockGuard) {
    let locks = env.client().await;
    let asking = locks.lock(KEY).owner(&Owner::new());
    let writing = asking.clone().mode(mode).await.unwrap();
    (locks, writing, asking.mode(Read).await.unwrap())
}

/// The owner still has a read.
pub async fn a_write_is_not_handed_over_past_its_own_read(env: &Env, mode: LockMode) {
    let (locks, writing, reading) = read_under_a_write(env, mode).await;
    let next = Waiter::queue(env, locks.lock(KEY).mode(mode)).await;
    writing.release().await.unwrap();
    next.keeps_waiting(env).await;
    reading.release().await.unwrap();
    next.promptly().await.release().await.unwrap();
}

/// Either request may be first.
pub async fn an_owner_that_reads_and_writes_at_once_does_not_wait_for_itself(
    env: &Env,
    mode: LockMode,
) {
    let write = env.owned(mode).await.wait(env.prompt());
    let read = write.clone().mode(Read);
    let (writing, reading) = tokio::join!(write.clone().acquire(), read.clone().acquire());
    reading.unwrap().release().await.unwrap();
    writing.unwrap().release().await.unwrap();
    let (reading, writing) = tokio::join!(read.acquire(), write.acquire());
    assert_err!(writing, Upgrade);
    reading.unwrap().release().await.unwrap();
}

pub async fn a_downgrade_lets_readers_in(env: &Env, mode: LockMode) {
    let (locks, writing, reading) = read_under_a_write(env, mode).await;
    let here = Waiter::queue(env, locks.lock(KEY).mode(Read)).await;
    let elsewhere = env.waiter(Read).await;
    writing.release().await.unwrap();
    let (here, elsewhere) = (here.promptly().await, elsewhere.promptly().await);
    assert!(env.is_taken(Write).await);
    here.release().await.unwrap();
    elsewhere.release().await.unwrap();
    assert!(env.is_taken(Write).await);
    reading.release().await.unwrap();
    assert!(!env.is_taken(Write).await);
}

/// In Redisson it does: PROTOCOL 1.3 (d).
pub async fn a_nested_read_does_not_shorten_the_write(env: &Env, mode: LockMode) {
    let [short, long] = [1, 3].map(|times| Lease::Fixed(env.short_lease() * times));
    let asking = env.owned(mode).await;
    let writing = asking.clone().lease(long).await.unwrap();
    let nested = asking.mode(Read).lease(short);
    let (one, two) = (nested.clone().await.unwrap(), nested.await.unwrap());
    one.release().await.unwrap();
    let next = env.waiter(Read).await;
    two.lost().await;
    assert!(two.release().await.is_err());
    next.keeps_waiting(env).await;
    assert!(!writing.is_lost());
    writing.release().await.unwrap();
    next.promptly().await.release().await.unwrap();
}

/// Each reader has a lease of its own.
pub async fn one_readers_lapse_ends_no_other(env: &Env, mode: LockMode) {
    let (short, long) = (env.short_lease(), env.short_lease() * 2);
    let asked = Instant::now();
    let longer = env.request(mode).await.lease(Lease::Fixed(long));
    let longer = longer.await.unwrap();
    let shorter = env.request(mode).await.lease(Lease::Fixed(short));
    let shorter = shorter.await.unwrap();
    let writer = env.waiter(Write).await;
    shorter.lost().await;
    drop(shorter);
    writer.keeps_waiting(env).await;
    assert!(!longer.is_lost());
    let writing = timeout(long * 2, writer.granted()).await.unwrap();
    assert!(longer.is_lost() && asked.elapsed() >= long);
    writing.release().await.unwrap();
}

/// Each reader asks when the previous hold is too old to be joined.
pub async fn readers_of_one_process_share_few_holds(env: &Env, mode: LockMode) {
    const READERS: usize = 200;
    let unshared = |builder: LockClientBuilder| builder.share_window(Duration::ZERO);
    let locks = env.client_with(unshared).await;
    let reader = |_| locks.lock(KEY).mode(mode).owner(&Owner::new());
    let mut guards = acquire_all((0..READERS).map(reader)).await;
    let holds = env.calls.granted(&LockKey::new(KEY)).len();
    assert!(holds < READERS / 2, "{holds} holds of one process");
    // A writer is granted when the last of them releases.
    let writer = env.waiter(rival(mode)).await;
    let last = guards.pop().unwrap();
    release_all(guards).await;
    writer.keeps_waiting(env).await;
    last.release().await.unwrap();
    writer.promptly().await.release().await.unwrap();
}

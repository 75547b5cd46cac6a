//! Readers and writers: promise S7, and no writer or reader starves.

use LockMode::{Read, Write};

use super::*;
use tower_distributed_lock::client::LockClientBuilder;

pub async fn readers_share_the_lock(env: &Harness) {
    let site = CriticalSection::default();
    let reading = |process: &Process| (process.request(), env.moment * 4);
    let first = visits(&site, 1, env.both().map(reading));
    let joining = visits(&site, 1, env.both().map(reading));
    sleep(env.moment).await;
    let too_late_to_join = visits(&site, 1, env.both().map(reading));
    for readers in [first, joining, too_late_to_join] {
        readers.join_all().await;
    }
    assert_eq!(site.most_holders(), 6);
}

/// A hold for reading whose time is over in which others join without asking the store.
async fn reader(env: &Harness) -> LockGuard {
    let reader = env.here.lock(KEY).mode(Read).await.unwrap();
    sleep(env.moment).await;
    reader
}

pub async fn a_new_reader_waits_behind_a_waiting_writer(env: &Harness) {
    let reader = reader(env).await;
    let writer = env.waits(env.elsewhere.request()).await;
    for process in [&env.here, &env.elsewhere, &env.process().await] {
        is_refused(process.rival()).await;
    }
    let newcomer = env.waiter(Read).await;
    reader.release().await.unwrap();
    writer.serve_promptly().await;
    newcomer.serve_promptly().await;
}

/// Readers that waited for it are granted beside the reader that holds.
pub async fn a_cancelled_writer_blocks_no_readers(env: &Harness) {
    let reader = reader(env).await;
    let writer = env.waits(env.elsewhere.request()).await;
    let here = env.waits(env.here.rival()).await;
    let elsewhere = env.waiter(Read).await;
    writer.cancel().await;
    here.serve_promptly().await;
    elsewhere.serve_promptly().await;
    reader.release().await.unwrap();
}

pub async fn a_frozen_writer_blocks_readers_for_seconds(env: &Harness) {
    let reader = env.here.rival().await.unwrap();
    let frozen = env.frozen().await;
    is_granted_past_the_frozen(env).await;
    reader.release().await.unwrap();
    frozen.thaw().serve().await;
}

pub async fn a_frozen_reader_blocks_writers_for_seconds(env: &Harness) {
    let writer = env.here.rival().await.unwrap();
    let frozen = env.frozen().await;
    writer.release().await.unwrap();
    is_granted_past_the_frozen(env).await;
    frozen.thaw().serve().await;
}

async fn is_granted_past_the_frozen(env: &Harness) {
    let next = env.elsewhere.rival();
    let next = next.wait(WAITER_LIVENESS + Duration::from_secs(2)).await;
    next.unwrap().release().await.unwrap();
}

/// The writers and the reader wait in one process or in two. The writers' process learns of a reader of another process
/// only when it asks the store, which it does in the end.
pub async fn a_writer_does_not_hand_over_past_waiting_readers(env: &Harness) {
    let writers = &env.process_with(|builder| builder.handovers(0)).await;
    let elsewhere = &env.elsewhere;
    for readers in [writers, elsewhere] {
        let first = writers.rival().await.unwrap();
        let second = env.waits(writers.rival()).await;
        let third = env.waits(elsewhere.rival()).await;
        let reader = env.waits(readers.request()).await;
        first.release().await.unwrap();
        let reader = reader.promptly().await;
        second.keeps_waiting(env).await;
        third.keeps_waiting(env).await;
        reader.release().await.unwrap();
        tokio::join!(second.serve(), third.serve());
    }
}

pub async fn every_waiting_reader_is_granted_after_a_write(env: &Harness) {
    let writer = env.here.rival().await.unwrap();
    let processes = [&env.here, &env.elsewhere, &env.process().await];
    let readers = processes.iter().flat_map(|process| {
        let leases = [30, 30, 40].map(|lease| Lease::Renewed(Duration::from_secs(lease)));
        leases.map(|lease| process.request().lease(lease))
    });
    let readers = env.all_wait(readers).await;
    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.promptly().await);
    }
    release_all(guards).await;
}

pub async fn a_writer_is_granted_among_readers(env: &Harness) {
    is_granted_among_rivals(env).await;
}

pub async fn a_reader_is_granted_among_writers(env: &Harness) {
    is_granted_among_rivals(env).await;
}

/// Six requests work without a pause, in two processes; another request is still granted repeatedly.
async fn is_granted_among_rivals(env: &Harness) {
    let works = [1, 2, 3].map(|n| env.moment / 4 * n);
    let mut working = busy(&env.both(), rival(env.mode), works);
    for process in [env.process().await, env.process().await] {
        for _ in 0..4 {
            granted_within(env.prompt() * 2, process.request()).await;
        }
    }
    working.shutdown().await;
}

pub async fn an_upgrade_is_refused_at_once(env: &Harness) {
    let asking = env.here.owned();
    let reading = asking.clone().mode(Read).await.unwrap();
    let asked = Instant::now();
    assert_err!(asking.clone().await, Upgrade);
    assert!(asked.elapsed() < env.prompt());
    reading.release().await.unwrap();
    asking.await.unwrap().release().await.unwrap();
}

/// An owner's write, and the owner's request for a read under it.
async fn write(env: &Harness) -> (LockGuard, LockRequest) {
    let asking = env.here.owned();
    let writing = asking.clone().await.unwrap();
    (writing, asking.mode(Read))
}

pub async fn a_writer_reads_under_its_own_write(env: &Harness) {
    let (writing, reading) = write(env).await;
    let (one, two) = tokio::join!(reading.clone().acquire(), reading.clone().acquire());
    one.unwrap().release().await.unwrap();
    two.unwrap().release().await.unwrap();
    let reading = reading.wait(Duration::ZERO).await.unwrap();
    assert!(env.is_taken().await);
    reading.release().await.unwrap();
    assert!(env.is_taken().await);
    writing.release().await.unwrap();
    assert!(!env.refuses(Write).await);
}

/// The owner still has a read.
pub async fn a_write_is_not_handed_over_past_its_own_read(env: &Harness) {
    let (writing, reading) = write(env).await;
    let reading = reading.await.unwrap();
    let next = env.waits(env.here.request()).await;
    writing.release().await.unwrap();
    next.keeps_waiting(env).await;
    reading.release().await.unwrap();
    next.serve_promptly().await;
}

/// Either request may be first.
pub async fn an_owner_that_reads_and_writes_at_once_does_not_wait_for_itself(env: &Harness) {
    let write = env.here.owned().wait(env.prompt());
    let read = write.clone().mode(Read);
    let (writing, reading) = tokio::join!(write.clone().acquire(), read.clone().acquire());
    reading.unwrap().release().await.unwrap();
    writing.unwrap().release().await.unwrap();
    let (reading, writing) = tokio::join!(read.acquire(), write.acquire());
    assert_err!(writing, Upgrade);
    reading.unwrap().release().await.unwrap();
}

/// Each reader has a lease of its own.
pub async fn one_readers_lapse_ends_no_other(env: &Harness) {
    let (asked, long) = (Instant::now(), env.short_lease() * 2);
    let longer = env.here.request().lease(Lease::Fixed(long));
    let longer = longer.await.unwrap();
    let shorter = env.elsewhere.request().lease(env.fixed());
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
pub async fn readers_of_one_process_share_few_holds(env: &Harness) {
    const READERS: usize = 200;
    let unshared = |builder: LockClientBuilder| builder.share_window(Duration::ZERO);
    let process = env.process_with(unshared).await;
    let mut guards = acquire_all((0..READERS).map(|_| process.owned())).await;
    let holds = env.asked().granted.len();
    assert!(holds < READERS / 2, "{holds} holds of one process");
    // A writer is granted when the last of them releases.
    let writer = env.waits(env.here.rival()).await;
    let last = guards.pop().unwrap();
    release_all(guards).await;
    writer.keeps_waiting(env).await;
    last.release().await.unwrap();
    writer.serve_promptly().await;
}

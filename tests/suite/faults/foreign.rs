//! Data under a lock's name that is not from a lock.

use std::time::{Duration, Instant};

use tower_distributed_lock::{Lease, LockClient, LockError, LockMode};

use super::{MODES, PATIENT, client, command, granted, nothing_is_left, outcome, rival, waits};
use super::{take_and_release, works_again};
use crate::support::{RedisServer, eventually};

/// The commands that write data under the key `n` that is not a lock in this mode.
fn no_lock(mode: LockMode) -> [Vec<&'static str>; 3] {
    let endless = match mode {
        LockMode::Reentrant | LockMode::Fair => vec!["HSET", "n", "other:1", "1"],
        LockMode::Read => vec!["HSET", "n", "mode", "write", "other:1:write", "1"],
        LockMode::Write => vec!["HSET", "n", "mode", "read", "other:1", "1"],
        LockMode::Permit(_) => vec!["SET", "n", "1x"],
    };
    [vec!["SET", "n", "x"], vec!["RPUSH", "n", "x"], endless]
}

async fn is_conflict(asked: Result<tower_distributed_lock::LockGuard, LockError>, what: &str) {
    assert!(
        matches!(asked, Err(LockError::Conflict(_))),
        "{what}: {asked:?}"
    );
}

/// L4. A key of another type, or a lock that never expires, is an error at once, and not after the wait.
#[tokio::test]
async fn something_that_is_no_lock_is_a_conflict_at_once_and_stays() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    for mode in MODES {
        for write in no_lock(mode) {
            command(&server, &write).await;
            let before = server.dump().await;
            let began = Instant::now();
            for wait in [Duration::ZERO, PATIENT] {
                let asked = locks.lock("n").mode(mode).wait(wait).await;
                is_conflict(asked, &format!("{mode:?} {write:?}")).await;
            }
            assert!(began.elapsed() < PATIENT / 2);
            assert_eq!(server.dump().await, before);
            // Locks on other keys are not affected.
            take_and_release(&[&locks]).await;
            command(&server, &["FLUSHALL"]).await;
        }
    }
    works_again(&server, &[&locks]).await;
}

/// L4, S5. The data is written while there are a holder and waiters.
#[tokio::test]
async fn a_lock_overwritten_while_it_is_waited_for_ends_the_wait() {
    let server = RedisServer::start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    for mode in MODES {
        for write in no_lock(rival(mode)) {
            let guard = holder.lock("n").mode(mode).await.expect("free");
            let waiting = waits(&server, &other, "n", rival(mode)).await;
            let mut overwrite = redis::pipe();
            overwrite.atomic().del("n");
            overwrite.cmd(write[0]).arg(&write[1..]);
            let done = overwrite.exec_async(&mut server.connection().await).await;
            done.expect("overwritten");
            is_conflict(outcome(waiting).await, &format!("{mode:?} {write:?}")).await;
            let released = guard.release().await;
            assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
            command(&server, &["DEL", "n"]).await;
            nothing_is_left(&server, &[&holder, &other]).await;
        }
    }
    works_again(&server, &[&holder, &other]).await;
}

/// L1, L4. Redisson never writes such a count, but a client that does holds the lock until it expires.
#[tokio::test]
async fn a_count_that_is_no_number_is_waited_for_like_any_other() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    for mode in MODES {
        let fields = match rival(mode) {
            LockMode::Reentrant | LockMode::Fair | LockMode::Permit(_) => {
                vec!["other:1", "many"]
            }
            LockMode::Write => vec!["mode", "write", "other:1:write", "many"],
            LockMode::Read => vec!["mode", "read", "other:1", "many"],
        };
        command(&server, &[&["HSET", "n"], &fields[..]].concat()).await;
        command(&server, &["PEXPIRE", "n", "1500"]).await;
        let brief = locks.lock("n").mode(mode).wait(Duration::from_millis(100));
        let asked = brief.await;
        assert!(
            matches!(asked, Err(LockError::Busy { .. })),
            "{mode:?} {asked:?}"
        );
        let waiting = waits(&server, &locks, "n", mode).await;
        granted(waiting).await.release().await.expect("held");
        works_again(&server, &[&locks]).await;
    }
}

/// S1, L2, L8. A brace in a name moves the hash tag of the other keys of the lock.
#[tokio::test]
async fn names_with_braces_are_locks_like_any_other() {
    let server = RedisServer::start().await;
    let clients = [client(server.url()).await, client(server.url()).await];
    for name in ["a{n}b", "{n}", "{}n", "na{me", "a}b", "{a}{b}", "}{"] {
        for mode in MODES {
            passes_on(&clients, name, mode).await;
        }
    }
    works_again(&server, &[&clients[0], &clients[1]]).await;
}

/// From one client to the other, which waits.
async fn passes_on([holder, other]: &[LockClient; 2], name: &str, mode: LockMode) {
    let guard = holder.lock(name).mode(mode).await.expect("free");
    let brief = other.lock(name).mode(rival(mode)).wait(Duration::ZERO);
    let asked = brief.await;
    assert!(
        matches!(asked, Err(LockError::Busy { .. })),
        "{name} {mode:?}"
    );
    let waiting = tokio::spawn(other.lock(name).mode(rival(mode)).wait(PATIENT).acquire());
    tokio::time::sleep(Duration::from_millis(20)).await;
    guard.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
}

/// S4. The expiry of a held lock is removed: its next renewal sets it again, so that the lock does not outlive its holder.
#[tokio::test]
async fn a_lock_without_an_expiry_gets_one_by_its_renewal() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    for mode in MODES {
        let lease = Lease::Renewed(Duration::from_millis(600));
        let guard = locks.lock("n").mode(mode).lease(lease).await.expect("free");
        command(&server, &["PERSIST", "n"]).await;
        eventually("it has an end again", PATIENT, async || {
            let left: i64 = server.ask(&["PTTL", "n"]).await;
            (1..=600).contains(&left)
        })
        .await;
        guard.release().await.expect("it was held all the time");
    }
    works_again(&server, &[&locks]).await;
}

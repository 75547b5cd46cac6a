//! A server that loses its data or its scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tower_distributed_lock::LockError;

use super::{
    MODES, client, command, errors, granted, hold_everything, wait_for_everything, works_again,
};
use crate::support::RedisServer;

/// S5, L2. No message reports that the lock is free; waiting requests find out by polling.
#[tokio::test]
async fn a_flush_takes_every_lock_and_the_waiters_notice_by_themselves() {
    let server = RedisServer::start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    for wipe in [
        &["FLUSHALL"][..],
        &["DEL", "reentrant", "fair", "read", "write"],
    ] {
        let guards = hold_everything(&holder).await;
        let waiting = wait_for_everything(&server, &other).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        command(&server, wipe).await;
        for (mode, waiting) in MODES.into_iter().zip(waiting) {
            let guard = granted(waiting).await;
            guard.release().await.unwrap_or_else(|error| {
                panic!("{wipe:?} {mode:?}: the next one has it: {error}");
            });
        }
        for guard in guards {
            let released = guard.release().await;
            assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        }
        works_again(&server, &[&holder, &other]).await;
    }
}

/// S9. No caller notices, whichever script is affected.
#[tokio::test]
async fn scripts_forgotten_in_the_middle_of_the_work_are_sent_again() {
    let server = RedisServer::start().await;
    let clients = [client(server.url()).await, client(server.url()).await];
    let done = Arc::new(AtomicBool::new(false));
    let working: Vec<_> = clients
        .iter()
        .flat_map(|locks| MODES.map(|mode| (locks.clone(), mode)))
        .map(|(locks, mode)| {
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) {
                    let guard = locks.lock(mode.as_str()).mode(mode).await.expect("granted");
                    guard.release().await.expect("confirmed");
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let began = Instant::now();
    while errors(&server, "NOSCRIPT").await < 200 {
        assert!(began.elapsed() < super::PATIENT, "no request met it");
        command(&server, &["SCRIPT", "FLUSH"]).await;
    }
    done.store(true, Ordering::Relaxed);
    for task in working {
        let rounds: u32 = super::outcome(task).await;
        assert!(rounds > 0);
    }
    works_again(&server, &[&clients[0], &clients[1]]).await;
}

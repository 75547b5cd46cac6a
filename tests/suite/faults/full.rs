//! A server whose memory is full.

use std::time::{Duration, Instant};

use tower_distributed_lock::{Lease, LockError, LockMode};

use super::{MODES, PATIENT, client, command, errors, told, works_again};
use crate::support::RedisServer;

/// S9, L4. A request fails at once, whatever its wait; holds are renewed and released as before.
#[tokio::test]
async fn a_full_server_refuses_at_once_and_still_renews_and_releases() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let lease = Duration::from_secs(3);
    let mut guards = Vec::new();
    // The permit is first in the renewals.
    for mode in [LockMode::permits(1)].into_iter().chain(MODES) {
        let asking = locks.lock(mode.as_str()).mode(mode);
        guards.push(asking.lease(Lease::Renewed(lease)).await.expect("free"));
    }
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for mode in MODES {
        let began = Instant::now();
        let asked = locks.lock("new").mode(mode).wait(PATIENT).await;
        let error = asked.expect_err("there is no room");
        assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
        assert!(told(&error).contains("OOM"), "{}", told(&error));
        assert!(began.elapsed() < PATIENT / 2);
    }
    // Redis 6.2 counts every failure inside a script as ERR.
    let refused = errors(&server, "OOM").await + errors(&server, "ERR").await;
    assert!(refused >= 4, "it was full");
    tokio::time::sleep(lease + lease / 2).await;
    for guard in guards {
        assert!(!guard.is_lost(), "it was renewed");
        guard.release().await.expect("held all the time");
    }
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    // The limit of permits is kept for a day.
    command(&server, &["DEL", "permit", "tower_lock_limit:{permit}"]).await;
    works_again(&server, &[&locks]).await;
}

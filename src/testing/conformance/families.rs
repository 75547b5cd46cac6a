//! Two kinds of lock on one key: PROTOCOL 1.10.

use crate::{LockError, LockMode};
use tokio::time::Instant;

use super::KEY;
use super::env::Env;

/// The two kinds do not exclude each other, and waiting does not help.
pub async fn two_kinds_of_lock_on_one_key_conflict(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let guard = locks.lock(KEY).mode(mode).await.unwrap();
    for other in [
        LockMode::Reentrant,
        LockMode::Fair,
        LockMode::Read,
        LockMode::Write,
        LockMode::permits(1),
    ] {
        if other.family() == mode.family() || !env.has(other) {
            continue;
        }
        for client in [&locks, &env.client().await] {
            let asked = Instant::now();
            let refused = client.lock(KEY).mode(other).await;
            assert!(
                matches!(refused, Err(LockError::Conflict(_))),
                "{refused:?}"
            );
            assert!(asked.elapsed() < env.prompt());
        }
    }
    guard.release().await.unwrap();
}

//! Two kinds of lock on one key: PROTOCOL 1.10.

use super::*;

/// The two kinds do not exclude each other, and waiting does not help.
pub async fn two_kinds_of_lock_on_one_key_conflict(env: &Env, mode: LockMode) {
    let (locks, guard) = env.held_here(mode).await;
    let others = env.modes.iter().copied();
    for other in others.filter(|other| other.family() != mode.family()) {
        for client in [&locks, &env.client().await] {
            let asked = Instant::now();
            assert_err!(client.lock(KEY).mode(other).await, Conflict);
            assert!(asked.elapsed() < env.prompt());
        }
    }
    guard.release().await.unwrap();
}

//! Two kinds of lock on one key: PROTOCOL 1.10.

use super::*;

/// The two kinds do not exclude each other, and waiting does not help.
pub async fn two_kinds_of_lock_on_one_key_conflict(env: &Harness) {
    let guard = env.here.request().await.unwrap();
    let others = env.modes.iter().copied();
    for other in others.filter(|other| other.family() != env.mode.family()) {
        for process in env.both() {
            let asked = Instant::now();
            assert_err!(process.lock(KEY).mode(other).await, Conflict);
            assert!(asked.elapsed() < env.prompt());
        }
    }
    guard.release().await.unwrap();
}

//! What a guard says of itself, and of a store that is silent.

use std::panic::{RefUnwindSafe, UnwindSafe};

use super::*;
use crate::LockClient;
use crate::exploration::script::Script;
use crate::lock::Lease;
use crate::store::memory::MemoryStore;

/// The compiler checks it.
#[test]
fn a_handle_can_be_used_where_panics_are_caught() {
    fn can_be_used<T: UnwindSafe + RefUnwindSafe>() {}
    can_be_used::<LockHandle>();
}

#[tokio::test]
async fn a_guard_and_its_handle_say_what_they_hold() {
    let locks = LockClient::new(MemoryStore::new());
    let guard = locks.lock("stock:7").await.expect("free");
    for text in [format!("{guard:?}"), format!("{:?}", guard.handle())] {
        for part in ["stock:7", "Reentrant", "is_lost: false"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// Otherwise the release is unconfirmed, and its caller may hope.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_lost_lock_says_so_although_the_store_is_silent() {
    let (mut script, locks) = Script::client(0);
    let lease = Duration::from_secs(30);
    let guard = script
        .grant(locks.lock("k").lease(Lease::Fixed(lease)))
        .await;
    guard.lost().await;
    let (released, _hangs) = tokio::join!(guard.release(), script.release());
    assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
}

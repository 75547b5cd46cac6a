//! The length of a turn while others wait outside the line of the store, as clients of Redisson do.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_distributed_lock::store::Attempt;
use tower_distributed_lock::{Hold, HoldId, LockClient, LockMode, LockStore};
use uuid::Uuid;

use super::wired::Wired;

const TASKS: usize = 8;
const SECTIONS: usize = 20;

/// Takes the key in several tasks, one section after the other. Returns the number of holds that the sections had.
async fn holds_of_all_sections(store: &Wired, mode: LockMode, work: Duration) -> usize {
    let locks = LockClient::new(store.clone());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            for _ in 0..SECTIONS {
                let held = locks.lock("1:n").mode(mode).await.expect("granted");
                sleep(work).await;
                held.release().await.expect("held");
            }
        });
    }
    tasks.join_all().await;
    store.calls("release", 1).len()
}

/// A section is as long as it is because of its work, which no other section of the process saves.
#[tokio::test(start_paused = true)]
async fn while_others_wait_outside_the_line_a_turn_is_one_section() {
    for mode in [LockMode::Reentrant, LockMode::Write] {
        for work in [1, 5].map(Duration::from_millis) {
            let alone = holds_of_all_sections(&Wired::default(), mode, work).await;
            assert!(alone < TASKS * SECTIONS / 4, "{mode:?} {work:?}: {alone}");

            let store = Wired::default();
            let hold = Hold {
                key: "1:n".into(),
                mode,
                id: HoldId::new(Uuid::from_u128(1), 1),
            };
            let waits = Attempt::new(hold, Duration::from_secs(30));
            let waits = waits.patience(Duration::from_secs(60)).in_line(false);
            let _listens = store.subscribe(&waits).await.expect("it answers");
            let beside = holds_of_all_sections(&store, mode, work).await;
            assert_eq!(beside, TASKS * SECTIONS, "{mode:?} {work:?}");
        }
    }
}

//! The line of waiters beside attempts that have no place in it.

use tower_distributed_lock::LockMode;

use super::*;

/// An attempt without a place takes a free lock although others wait in line. After its end, the line has its turn.
#[tokio::test]
async fn the_line_is_overtaken_once_and_not_again() {
    let (server, store) = server_and_store().await;
    for mode in [LockMode::Reentrant, LockMode::Write] {
        let key = format!("{mode:?}");
        let busy = format!("tower_lock_busy:{{{key}}}");
        let [holder, first, second] = [(); 3].map(|()| attempt(&*key, mode));
        let waiter = patient(&*key, mode);
        assert!(asks(&store, &holder).await);
        assert!(!asks(&store, &waiter).await);
        assert!(releases(&store, &holder).await);

        assert!(asks(&store, &first).await);
        assert_eq!(unusual(&server, &busy).await[TURN], "3");
        assert!(!asks(&store, &waiter).await);
        assert!(releases(&store, &first).await);
        let words = unusual(&server, &busy).await;
        assert_eq!(words[TURN], "2");

        // Longer than the few milliseconds that it has.
        let ends = words[ENDS].parse::<u64>().unwrap() + 60_000;
        change_unusual(&server, &busy, ENDS, &ends.to_string()).await;
        assert!(!asks(&store, &second).await);
        assert!(asks(&store, &waiter).await);
        assert!(releases(&store, &waiter).await);
        assert!(asks(&store, &second).await, "none waits in line");
        assert!(releases(&store, &second).await);
    }
}

/// The hold was granted before any waited: it has overtaken none.
#[tokio::test]
async fn a_holder_that_asks_again_gives_the_line_no_turn() {
    let (server, store) = server_and_store().await;
    for mode in [LockMode::Reentrant, LockMode::Write, LockMode::permits(1)] {
        let key = format!("{mode:?}");
        let busy = format!("tower_lock_busy:{{{key}}}");
        let (holder, waiter) = (attempt(&*key, mode), patient(&*key, mode));
        assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
        assert!(asks(&store, &holder).await);
        assert_eq!(unusual(&server, &busy).await[TURN], "0", "{mode:?}");
        assert!(releases(&store, &holder).await);
        assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
    }
}

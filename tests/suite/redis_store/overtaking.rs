//! The line of waiters beside attempts that have no place in it.

use tower_distributed_lock::LockMode;

use super::*;

/// An attempt without a place takes a free lock although others wait in line. After its end, the line has its turn.
#[tokio::test]
async fn the_line_is_overtaken_once_and_not_again() {
    let (server, store) = server_and_store().await;
    for mode in [LockMode::Reentrant, LockMode::Write] {
        let key = format!("{mode:?}");
        let outside = format!("tower_lock_outside:{{{key}}}");
        let [holder, first, second] = [(); 3].map(|()| attempt(&*key, mode));
        let waiter = patient(&*key, mode);
        assert!(asks(&store, &holder).await);
        assert!(!asks(&store, &waiter).await);
        assert!(releases(&store, &holder).await);

        assert!(asks(&store, &first).await);
        assert_eq!(server.ask::<String>(&["GET", &outside]).await, "0");
        // A renewal prolongs the hold, and not this.
        assert!(server.ask::<i64>(&["TTL", &outside]).await > 80_000);
        assert!(!asks(&store, &waiter).await);
        assert!(releases(&store, &first).await);
        let turn: Option<String> = server.ask(&["GET", &outside]).await;
        assert!(turn.is_none_or(|turn| turn == "2"), "it is over soon");

        // Longer than the few milliseconds that it has.
        let () = server.ask(&["SET", &outside, "2", "PX", "60000"]).await;
        assert!(!asks(&store, &second).await);
        assert!(asks(&store, &waiter).await);
        assert!(releases(&store, &waiter).await);
        assert!(asks(&store, &second).await, "none waits in line");
        assert!(releases(&store, &second).await);
    }
}

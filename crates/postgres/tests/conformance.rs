//! The store proves itself: every test that the stores of `tower-distributed-lock` pass.

#![cfg(test)]

mod server;

use std::time::Duration;

use tower_distributed_lock::Hold;
use tower_distributed_lock_postgres::PostgresStore;
use tower_distributed_lock_testing::conformance::Testbed;

use server::{Database, Server};

/// A database of its own for each test.
struct Postgres(Database<'static>);

impl Testbed for Postgres {
    type Store = PostgresStore;
    // A commit, on a connection that may have to be opened first.
    const MOMENT: Duration = Duration::from_millis(100);

    async fn start() -> Self {
        Self(Server::shared().database().await)
    }

    async fn connect(&self) -> PostgresStore {
        PostgresStore::connect(&self.0.config()).await.unwrap()
    }

    async fn leftovers(&self) -> Vec<String> {
        let live = "SELECT concat_ws(' ', kind, id, key) FROM tower_lock.entry WHERE until > clock_timestamp()";
        let rows = self.0.client().await.query(live, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn connections(&self) -> usize {
        let stores = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'tower_lock'";
        let row = self.0.client().await.query_one(stores, &[]).await.unwrap();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    }

    /// As it vanishes by an operator's hand: no waiter is woken.
    async fn steal(&self, hold: &Hold) {
        let gone = "DELETE FROM tower_lock.entry WHERE key = $1 AND kind IN ('exclusive', 'write', 'read')";
        let key = hold.key.as_str();
        self.0.client().await.execute(gone, &[&key]).await.unwrap();
    }
}

mod postgres {
    use tower_distributed_lock::store::Release;
    use tower_distributed_lock::{HoldId, LockKey, LockMode, LockStore, StoreErrorKind};

    use super::*;

    tower_distributed_lock_testing::conformance!(super::Postgres: reentrant fair read write, fenced);

    /// Its caller has given up by then, and repeats the question: each repeat would occupy one more process of the server.
    #[tokio::test]
    async fn no_question_waits_for_a_key_for_longer_than_its_caller() {
        let server = Server::shared();
        let database = server.database().await;
        let store = PostgresStore::connect(&database.config()).await.unwrap();
        let other = database.client().await;
        let enters = "SELECT pg_advisory_lock(hashtextextended('k', 4242))";
        other.simple_query(enters).await.unwrap();
        let release = [Release::new(Hold {
            key: LockKey::new("k"),
            mode: LockMode::Write,
            id: HoldId::new(uuid::Uuid::nil(), 1),
        })];
        let failed = store.release(&release).await.unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Transient, "{failed}");
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event = 'advisory'";
        let row = other.query_one(waiting, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 0);
    }
}

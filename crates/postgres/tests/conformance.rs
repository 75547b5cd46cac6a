//! The store proves itself: every test that the stores of `tower-distributed-lock` pass.

#![cfg(test)]

mod server;

use std::time::Duration;

use tower_distributed_lock::lock::Hold;
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
    use tower_distributed_lock::audit::Deployment;
    use tower_distributed_lock::error::{StoreError, StoreErrorKind};
    use tower_distributed_lock::lock::HoldId;
    use tower_distributed_lock::store::{HoldStatus, LockStore, Renewal};
    use tower_distributed_lock::{LockKey, LockMode};

    use super::*;

    tower_distributed_lock_testing::conformance!(super::Postgres: reentrant fair read write, fenced, records);

    fn hold(key: &str) -> Hold {
        Hold {
            key: LockKey::new(key),
            mode: LockMode::Write,
            id: HoldId::new(uuid::Uuid::nil(), 1),
        }
    }

    /// The number of processes of the server that wait for a key.
    async fn waiting(client: &tokio_postgres::Client) -> i64 {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event = 'advisory'";
        client.query_one(waiting, &[]).await.unwrap().get(0)
    }

    /// Its caller has given up by then, and repeats the question: each repeat would occupy one more process of the server.
    #[tokio::test]
    async fn no_question_waits_for_its_keys_for_longer_than_its_caller() {
        let server = Server::shared();
        let database = server.database().await;
        let store = PostgresStore::connect(&database.config()).await.unwrap();
        let other = database.client().await;
        let key = |which| {
            format!("({which}(hashtextextended(key, 4242))) FROM unnest('{{k, l}}'::text[]) AS key")
        };
        for which in ["min", "max"] {
            let enters = format!("SELECT pg_advisory_lock{}", key(which));
            other.simple_query(&enters).await.unwrap();
        }
        // It waits for one key after the other.
        let first = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let leaves = format!("SELECT pg_advisory_unlock{}", key("min"));
            other.simple_query(&leaves).await.unwrap();
        };
        let checks = ["k", "l"].map(|key| Renewal::check(hold(key)));
        let (failed, ()) = tokio::join!(store.renew(&checks), first);
        let failed = failed.unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Transient, "{failed}");
        assert_eq!(waiting(&other).await, 0);
    }

    /// A program may use one configuration for its own long statements and for its locks.
    #[tokio::test]
    async fn no_question_waits_long_for_a_key_even_if_the_user_sets_no_limit_for_statements() {
        let database = Server::shared().database().await;
        let config = format!("{} options='-c statement_timeout=0'", database.config());
        let store = PostgresStore::connect(&config).await.unwrap();
        let other = database.client().await;
        let enters = "SELECT pg_advisory_lock(hashtextextended('k', 4242))";
        other.simple_query(enters).await.unwrap();
        let failed = store.release(&hold("k"), None).await.unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Transient, "{failed}");
        assert_eq!(waiting(&other).await, 0);
    }

    /// Inserts entries of keys that begin with `key`, which have that much time left.
    async fn insert(client: &tokio_postgres::Client, key: &str, count: i32, left: &str) {
        let insert = format!(
            "INSERT INTO tower_lock.entry (key, kind, id, until)
            SELECT '{key}' || n, 'write', 'i', clock_timestamp() + interval '{left}' FROM generate_series(1, $1) AS n"
        );
        client.execute(&insert, &[&count]).await.unwrap();
    }

    async fn sweep(client: &impl tokio_postgres::GenericClient) -> i64 {
        let sweep = "SELECT tower_lock.sweep_entries()";
        client.query_one(sweep, &[]).await.unwrap().get(0)
    }

    /// A question about the key of a dead holder may be under way.
    #[tokio::test]
    async fn a_row_that_is_locked_stops_no_sweep() {
        let database = Server::shared().database().await;
        let (client, mut other) = (database.client().await, database.client().await);
        insert(&client, "k", 1_002, "-1 second").await;
        let asking = other.transaction().await.unwrap();
        let locks = "SELECT FROM tower_lock.entry WHERE key = 'k1' FOR UPDATE";
        asking.query_one(locks, &[]).await.unwrap();
        let sweeps = async { [sweep(&client).await, sweep(&client).await] };
        let swept = tokio::time::timeout(Duration::from_secs(60), sweeps).await;
        assert_eq!(swept.unwrap(), [1_000, 1]);
        asking.commit().await.unwrap();
        assert_eq!(sweep(&client).await, 1);
    }

    #[tokio::test]
    async fn a_sweep_reads_no_row_that_is_alive() {
        let database = Server::shared().database().await;
        let mut client = database.client().await;
        insert(&client, "alive", 20_000, "1 hour").await;
        insert(&client, "dead", 10, "-1 second").await;
        let analyze = "ANALYZE tower_lock.entry";
        client.simple_query(analyze).await.unwrap();
        let sweeping = client.transaction().await.unwrap();
        assert_eq!(sweep(&sweeping).await, 10);
        let reads = "SELECT seq_scan, idx_scan FROM pg_stat_xact_user_tables WHERE relid = 'tower_lock.entry'::regclass";
        let reads = sweeping.query_one(reads, &[]).await.unwrap();
        assert_eq!((reads.get::<_, i64>(0), reads.get::<_, i64>(1)), (0, 1));
    }

    /// Such as a connection through a pooler that drops what a store asks for when it connects. Two holders could have one key.
    #[tokio::test]
    async fn a_transaction_that_does_not_see_the_commits_before_its_turn_is_refused() {
        let database = Server::shared().database().await;
        let default =
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L',
            current_database(), 'repeatable read'); END $$";
        let client = database.client().await;
        client.batch_execute(default).await.unwrap();
        let enters = "SELECT tower_lock.enter('k')";
        let client = database.client().await;
        let refused = client.query_one(enters, &[]).await.unwrap_err();
        let refused = refused.as_db_error().unwrap().message();
        assert!(refused.contains("read committed"), "{refused}");
        let store = PostgresStore::connect(&database.config()).await.unwrap();
        let released = store.release(&hold("k"), None).await.unwrap();
        assert_eq!(released.status, HoldStatus::Gone);
    }

    #[tokio::test]
    async fn a_question_whose_connection_is_lost_behind_a_proxy_is_unanswered() {
        for code in ["08006", "08P01", "40003"] {
            let database = Server::shared().database().await;
            let store = PostgresStore::connect(&database.config()).await.unwrap();
            let fails = format!(
                "CREATE OR REPLACE FUNCTION tower_lock.enter(VARIADIC keys text[]) RETURNS timestamptz
                LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$"
            );
            database.client().await.batch_execute(&fails).await.unwrap();
            let failed = store.release(&hold("k"), None).await.unwrap_err();
            assert_eq!(
                failed.kind(),
                StoreErrorKind::Unanswered,
                "{code}: {failed}"
            );
        }
    }

    /// Each process of a service does it at its start.
    #[tokio::test]
    async fn several_processes_install_the_schema_at_once() {
        let database = Server::shared().database().await;
        let mut installing = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = PostgresStore::connect(&database.config()).await.unwrap();
            installing.spawn(async move {
                for _ in 0..5 {
                    store.install().await?;
                }
                Ok::<_, StoreError>(())
            });
        }
        for installed in installing.join_all().await {
            installed.unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_that_refuses_the_user_is_no_server_that_is_away() {
        let database = Server::shared().database().await;
        let stranger = database.config().replace("user=tests", "user=stranger");
        let refused = PostgresStore::connect(&stranger).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused}");
    }

    #[tokio::test]
    async fn settings_of_the_user_are_kept() {
        let database = Server::shared().database().await;
        let settings = "application_name=shop options='-c default_transaction_read_only=on'";
        let config = format!("{} {settings}", database.config());
        let store = PostgresStore::connect(&config).await.unwrap();
        let refused = store.release(&hold("k"), None).await.unwrap_err();
        let source = std::error::Error::source(&refused).unwrap();
        let source = std::error::Error::source(source).unwrap().to_string();
        assert!(source.contains("read-only"), "{source}");
        let shop = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'shop'";
        let row = database.client().await.query_one(shop, &[]).await.unwrap();
        assert!(row.get::<_, i64>(0) > 0);
    }

    #[tokio::test]
    async fn an_audit_knows_a_server_that_forgets_and_one_that_is_followed() {
        let server = Server::start();
        let database = server.database().await;
        let store = PostgresStore::connect(&database.config()).await.unwrap();
        let client = database.client().await;
        let audit = store.audit().await.unwrap();
        assert_eq!(audit.deployment, Deployment::Volatile);
        assert_eq!(audit.warnings.len(), 1, "{audit}");
        assert_eq!(audit.warnings[0].kind, "not_persistent");

        let flushes = "ALTER SYSTEM SET fsync = on";
        client.simple_query(flushes).await.unwrap();
        let reads = "SELECT pg_reload_conf()";
        client.simple_query(reads).await.unwrap();
        until(&store, Deployment::Durable).await;
        assert!(store.audit().await.unwrap().warnings.is_empty());

        let _follower = server.follower();
        until(&store, Deployment::Failover).await;
    }

    async fn until(store: &PostgresStore, expected: Deployment) {
        let mut found = store.audit().await.unwrap().deployment;
        for _ in 0..300 {
            if found == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            found = store.audit().await.unwrap().deployment;
        }
        assert_eq!(found, expected);
    }
}

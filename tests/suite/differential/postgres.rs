//! The memory store and the store on PostgreSQL.
//!
//! Time is easier than with Redis: every function of that store asks `tower_lock.clock()`, and here that is a row.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tower_distributed_lock::MemoryStore;
use tower_distributed_lock::store::{LockStore, Wakeups};
use tower_distributed_lock_postgres::PostgresStore;

use super::Pair;
use super::seen::{Reply, Seen};
use super::step::{LONG, SENTINEL, Step, Who, sentinel};
use super::world::{World, runtimes};
use crate::redis_store::woken;
use crate::support::PostgresServer;

/// A clock that stands still until it is moved.
const CLOCK: &str = "
    CREATE TABLE test_clock (instant timestamptz);
    INSERT INTO test_clock VALUES ('2026-01-01');
    CREATE OR REPLACE FUNCTION tower_lock.clock() RETURNS timestamptz
        LANGUAGE sql VOLATILE AS 'SELECT instant FROM test_clock';
";

/// Both, each with a runtime of its own: one whose time is paused, and a real one.
pub(super) struct Worlds {
    paused: Runtime,
    memory: World<MemoryStore>,
    real: Runtime,
    postgres: World<PostgresStore>,
    client: Client,
    /// Wakes when every message before its own has been delivered.
    sentinel: Wakeups,
    /// Every name that has asked for anything in this sequence.
    asked: BTreeSet<Who>,
}

impl Worlds {
    pub(super) fn new() -> Self {
        let (paused, real) = runtimes();
        let (store, client, sentinel) = real.block_on(async {
            let database = PostgresServer::shared().database().await;
            let client = database.client().await;
            client.batch_execute(CLOCK).await.expect("a clock");
            let store = PostgresStore::connect(&database.config()).await;
            let store = store.expect("a store");
            let mut sentinel = store.subscribe(&sentinel()).await.expect("it listens");
            // If the connection began to listen after the subscription, it has woken all.
            let _ = sentinel.wait().now_or_never();
            (store, client, sentinel)
        });
        Self {
            paused,
            memory: World::without_a_line(MemoryStore::new()),
            real,
            postgres: World::without_a_line(store),
            client,
            sentinel,
            asked: BTreeSet::new(),
        }
    }

    fn run(&self, statement: &str) {
        let done = self.real.block_on(self.client.batch_execute(statement));
        done.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }

    /// What is left, but for what is remembered of attempts that were withdrawn, and of finished work.
    fn left(&self, also_remembered: bool) -> Vec<String> {
        let left = "SELECT concat_ws(' ', kind, id, key) FROM tower_lock.entry
            WHERE $1 OR until > tower_lock.clock() AND kind NOT LIKE 'withdrawn %'
            UNION ALL SELECT 'record ' || key FROM tower_lock.record WHERE $1";
        let rows = self
            .real
            .block_on(self.client.query(left, &[&also_remembered]));
        let rows = rows.expect("rows").into_iter();
        rows.map(|row| row.get(0)).collect()
    }
}

impl Pair for Worlds {
    const PERMITS: bool = false;

    fn begin(&mut self) {
        self.asked.clear();
        self.memory = World::without_a_line(MemoryStore::new());
        self.postgres = World::without_a_line(self.postgres.store.clone());
        self.run("TRUNCATE tower_lock.entry, tower_lock.record");
    }

    fn take(&mut self, step: &Step) -> Option<(Seen, Seen)> {
        self.asked.extend(step.asks().iter().map(|ask| ask.who));
        let time = step.time();
        let memory = self.paused.block_on(async {
            tokio::time::advance(time).await;
            let reply = self.memory.take(step).await;
            self.memory.look(reply).await
        });
        let millis = time.as_millis();
        self.run(&format!(
            "UPDATE test_clock SET instant = instant + {millis} * interval '1 millisecond'"
        ));
        let mut postgres = self.real.block_on(async {
            let reply = self.postgres.take(step).await;
            let delivered = format!("SELECT pg_notify('tower_lock', 'exclusive {SENTINEL}')");
            let sent = self.client.batch_execute(&delivered).await;
            sent.expect("it is sent");
            woken(&mut self.sentinel).await;
            self.postgres.look(reply).await
        });
        // The table in `seen`: PostgreSQL does not tell how many have been woken, and has no line.
        if let (Reply::Released(counted), Reply::Released(untold))
        | (Reply::Recorded(counted), Reply::Recorded(untold)) =
            (&memory.reply, &mut postgres.reply)
        {
            assert_eq!(untold.notified, 0);
            untold.notified = counted.notified;
            untold.in_line = counted.in_line;
        }
        Some((memory, postgres))
    }

    fn end(&mut self, all_leave: bool) -> Option<String> {
        self.memory.listening.clear();
        self.postgres.listening.clear();
        if all_leave {
            let asked = &self.asked;
            self.paused.block_on(self.memory.all_leave(asked));
            self.real.block_on(self.postgres.all_leave(asked));
            let left = self.left(false);
            if !left.is_empty() {
                return Some(format!("all have left, and this is left: {left:?}"));
            }
        }
        self.take(&Step::Ticks(LONG))?;
        self.run("SELECT tower_lock.sweep_entries(), tower_lock.sweep_records()");
        let left = self.left(true);
        let empty = left.is_empty() && self.paused.block_on(async { self.memory.store.is_empty() });
        (!empty).then(|| format!("time is over, and this is left: {left:?}"))
    }
}

//! Locks on PostgreSQL, for a service that has PostgreSQL and no Redis. It is written as another crate would write it:
//! against the public [`LockStore`](tower_distributed_lock::store::LockStore) alone, with nothing of the library's own stores.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_distributed_lock_postgres::PostgresStore;
//! use tower_distributed_lock::LockClient;
//!
//! let store = PostgresStore::connect("host=/run/postgresql dbname=shop").await?;
//! store.install().await?; // makes the schema `tower_lock`, or brings it up to date
//! let locks = LockClient::new(store);
//! locks.lock("invoice:7").await?.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! * A hold is a row with the time at which its lease ends, by the server's clock. `schema.sql` has the rules of all modes;
//!   each question is one function and one transaction, and one transaction at a time has a key (an advisory lock).
//! * A wake-up is a `NOTIFY` in the transaction that frees the key. Each store has one connection that listens. When that
//!   connection has been broken, every waiter is woken: a message may have been lost meanwhile.
//! * Everything that has had its time is removed when its key is used next, or within a minute.
//!
//! # What is promised
//!
//! | promise | one server | behind a failover |
//! |---|---|---|
//! | S1, live holds exclude each other | unless the server's clock is stepped: a commit is on disk before it is answered | with synchronous replication (`synchronous_standby_names`, `synchronous_commit = on`) and clocks that agree; without it, a failover may lose a grant |
//! | S5, confirmed work never overlapped | yes | with synchronous replication, and if the old primary is fenced off before the new one is promoted |
//! | S6, the tokens of a key rise | yes: a sequence is never behind what was committed | as S1 |
//!
//! With `synchronous_commit = off`, `fsync = off` or unlogged tables, none of the above survives a crash.
//! [`LockClient::audit`](tower_distributed_lock::LockClient::audit) reads these settings.
//!
//! Connections are not encrypted: use a Unix socket or a trusted network.
//!
//! # What it costs
//!
//! Each grant, renewal and release is a commit, which waits for the disk. Commits that notify take turns, in the whole
//! server: some thousands of releases a second. Renewals go together: a client sends one question for a hundred holds.

mod config;
mod listener;
mod store;
mod value;

pub use store::PostgresStore;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

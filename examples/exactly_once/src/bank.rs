//! One account in SQLite.

use std::path::Path;

use anyhow::Context;
use tokio_rusqlite::rusqlite::{OptionalExtension, TransactionBehavior, params};
use tokio_rusqlite::{Connection, rusqlite};
use tower_distributed_lock::idempotency::IdempotencyKey;

use crate::step;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL);
    INSERT OR IGNORE INTO account VALUES (1, 100, 0);
    CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, request BLOB NOT NULL, answer TEXT);
";

/// The database. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Bank {
    database: Connection,
}

impl Bank {
    pub(crate) async fn open(file: &Path) -> anyhow::Result<Self> {
        let database = Connection::open(file).await?;
        let prepare = database.call(|sqlite| {
            sqlite.busy_timeout(std::time::Duration::from_secs(5))?;
            sqlite.execute_batch(SCHEMA)
        });
        prepare.await.context("the tables can be made")?;
        Ok(Self { database })
    }

    /// Takes `amount` from the account, once for each key, because the key is written in the transaction of the row. A repeat gets
    /// the answer of the first time. `None`: the key was used for another request.
    pub(crate) async fn pay(
        &self,
        key: &IdempotencyKey,
        amount: i64,
    ) -> anyhow::Result<Option<String>> {
        let (key, request) = (key.to_string(), key.fingerprint().to_vec());
        let pay = self.database.call(move |sqlite| {
            let work = sqlite.transaction_with_behavior(TransactionBehavior::Immediate)?;
            step::reached("begun");
            // It waits for a transaction that is writing the same key. A plain INSERT would fail on the second time, and PostgreSQL
            // aborts the whole transaction then.
            let insert = "INSERT INTO done (key, request) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            let is_first = work.execute(insert, params![key, request])? == 1;
            step::reached("key written");
            // The remedy: without it, the tests find the amount taken twice.
            if !is_first && std::env::var_os("WITHOUT_KEY").is_none() {
                let answer = "SELECT answer FROM done WHERE key = ?1 AND request = ?2";
                let answer = work.query_row(answer, params![key, request], |row| row.get(0));
                return answer.optional();
            }
            let balance: i64 = work.query_row(
                "UPDATE account SET balance = balance - ?1 WHERE id = 1 RETURNING balance",
                [amount],
                |row| row.get(0),
            )?;
            step::reached("row written");
            let answer = format!("paid: balance {balance}");
            let update = "UPDATE done SET answer = ?2 WHERE key = ?1";
            work.execute(update, params![key, answer])?;
            work.commit()?;
            step::reached("committed");
            Ok::<_, rusqlite::Error>(Some(answer))
        });
        Ok(pay.await?)
    }

    /// Sets the balance, unless a holder with a larger token has written: `false` then.
    pub(crate) async fn set_fenced(&self, token: u64, balance: i64) -> anyhow::Result<bool> {
        // SQLite's integers are signed. Tokens follow the clock in microseconds, far below.
        let token = i64::try_from(token)?;
        // The remedy: without it, the tests find an old holder's balance in the row.
        let update = match std::env::var_os("WITHOUT_TOKEN") {
            None => "UPDATE account SET balance = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
            Some(_) => "UPDATE account SET balance = ?1, token = ?2 WHERE id = 1",
        };
        let set = self
            .database
            .call(move |sqlite| sqlite.execute(update, params![balance, token]));
        Ok(set.await? == 1)
    }
}

//! The processes that have announced themselves.
//!
//! The key of an entry is `tower_lock_process:<client id>`, in every name space: the id of a holder leads to its process
//! without a further question, and a client cannot guess the ids of others.

use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use super::failure::refused;
use super::names::Names;
use super::reply::{read, status};
use super::timeouts::ms;
use super::{RedisStore, script};
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::store::{BATCH, ProcessInfo};

/// The prefix of the keys of all entries.
pub(super) const ENTRIES: &str = "tower_lock_process:";

fn entry(client: &Uuid) -> LockKey {
    LockKey::new(format!("{ENTRIES}{client}"))
}

impl RedisStore {
    /// Keeps an entry for `lifetime`. Zero removes it.
    pub(super) async fn keep_process(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let key = entry(&client);
        let keys = [Names::of(&key).lock()];
        let call = match lifetime.is_zero() {
            true => script::FORGET.call(keys),
            false => {
                let value = serde_json::to_vec(process);
                let value = value.map_err(refused)?;
                script::ANNOUNCE.call(keys).arg((&value[..], ms(lifetime)))
            }
        };
        let answer = self.call(&key, |_| Ok(call)).await?;
        status(&answer).map(drop)
    }

    /// The entries of the clients, in order. An entry that is not one of this crate is skipped.
    pub(super) async fn look_up_processes(
        &self,
        clients: &[Uuid],
    ) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        let mut processes = Vec::with_capacity(clients.len());
        for some in clients.chunks(BATCH) {
            let entries = some.iter().map(|client| self.process(client));
            for process in join_all(entries).await {
                processes.push(process?);
            }
        }
        Ok(processes)
    }

    async fn process(&self, client: &Uuid) -> Result<Option<ProcessInfo>, StoreError> {
        let key = entry(client);
        let call = script::RECORD.call([Names::of(&key).lock()]);
        let value: Option<Vec<u8>> = read(self.call(&key, |_| Ok(call)).await?)?;
        Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
    }
}

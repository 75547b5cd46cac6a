//! The processes that have announced themselves.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::limits::after;
use crate::store::ProcessInfo;

/// The entries of clients, each with the time until which it is kept. A new entry removes those that are over.
#[derive(Default)]
pub(super) struct Processes(HashMap<Uuid, (ProcessInfo, Instant)>);

impl Processes {
    /// Keeps an entry for `lifetime`. Zero removes it.
    pub(super) fn announce(
        &mut self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
        now: Instant,
    ) {
        self.0.retain(|_, (_, until)| *until > now);
        match lifetime.is_zero() {
            true => self.0.remove(&client),
            false => self
                .0
                .insert(client, (process.clone(), after(now, lifetime))),
        };
    }

    pub(super) fn get(&self, client: &Uuid, now: Instant) -> Option<ProcessInfo> {
        let (process, until) = self.0.get(client)?;
        (*until > now).then(|| process.clone())
    }
}

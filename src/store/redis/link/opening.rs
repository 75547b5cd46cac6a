//! Opens a connection, and sends the first commands on it, before those of callers.

use tokio::time::{Instant, sleep, timeout_at};

use super::endpoint::{Endpoint, RawConnection};
use super::sentinel::FollowedMaster;
use super::waits::AckQueue;
use super::wire::Wire;
use super::{Link, is_unknown_script};
use crate::error::StoreError;
use crate::store::redis::protocol::failure::{accepted, transient, unreachable};
use crate::store::redis::protocol::rights;
use crate::store::redis::protocol::role::Role;
use crate::telemetry;

/// The server, with its credentials; behind sentinels, also which master it is.
type Found = (Endpoint, Option<FollowedMaster>);

impl Link {
    /// Opens a connection and checks that it can be used. One that cannot be used carries no command: a user who may
    /// write but not expire would take locks that never end.
    pub(super) async fn open(&self, or_replica: bool) -> Result<Wire, StoreError> {
        let over = self.over();
        self.dial(self.find(over).await?, or_replica, over).await
    }

    /// Opens another connection, if this one has no answer to a probe in time. Its error means that the server answers on none.
    ///
    /// Nothing is known of the server if only those fail who name it, or who have the credentials: these are asked again.
    pub(super) async fn another(&self) -> Result<Wire, StoreError> {
        loop {
            sleep(self.context.timeouts().probe() + self.context.delay()).await;
            let over = self.over();
            if let Ok(found) = self.find(over).await {
                return self.dial(found, true, over).await;
            }
        }
    }

    /// When connecting has taken too long.
    fn over(&self) -> Instant {
        Instant::now() + self.context.timeouts().connect
    }

    /// Asks for what a connection needs, before the server hears of it.
    async fn find(&self, over: Instant) -> Result<Found, StoreError> {
        // Boxed: a caller that may connect, which is seldom, has a small future.
        let finding = Box::pin(async {
            let (server, master) = self.context.connector.locate().await?;
            Ok((server.with_credentials().await?, master))
        });
        let found = timeout_at(over, finding).await;
        found.unwrap_or_else(|_| Err(self.late()))
    }

    async fn dial(
        &self,
        (server, master): Found,
        or_replica: bool,
        over: Instant,
    ) -> Result<Wire, StoreError> {
        let dialling = timeout_at(over, Box::pin(self.open_at(server, or_replica)));
        let dialled = dialling.await.unwrap_or_else(|_| Err(self.late()));
        let raw = dialled.map_err(|error| self.context.connector.failed(error))?;
        if master.as_ref().is_some_and(FollowedMaster::is_replaced) {
            // The store may have a connection to the new one already, which this one would replace.
            return Err(transient("another server has become the master"));
        }
        let waits = match (&self.on_push, self.context.settings.replicas) {
            (None, needed @ 1..) => {
                let timeouts = self.context.timeouts();
                Some(AckQueue::new(&raw.handle, needed, timeouts))
            }
            _ => None,
        };
        let up = telemetry::store::connected(self.carries());
        Ok(Wire::new(raw, master, waits, up))
    }

    fn late(&self) -> StoreError {
        let late = unreachable("connecting took too long");
        self.context.connector.failed(late)
    }

    /// Opens a connection to this server.
    async fn open_at(
        &self,
        server: Endpoint,
        or_replica: bool,
    ) -> Result<RawConnection, StoreError> {
        let rights = rights::question(self.context.settings.channels);
        let mut questions = Vec::new();
        // No script runs on the connection for messages: its user may have the rights for channels only.
        if self.on_push.is_none() {
            questions.push(rights.command.clone());
            questions.extend((self.context.settings.replicas > 0).then(rights::may_wait));
        }
        let opening = server.open(self.on_push.as_ref(), &questions);
        let (raw, hello, answers) = opening.await?;
        let mut answers = answers.into_iter();
        let connector = &self.context.connector;
        connector.expect(Role::read(&hello), or_replica)?;
        self.context.take_in(&hello);
        if let Some(mut missing) = answers.next() {
            if is_unknown_script(&missing) {
                let mut handle = raw.handle.clone();
                let sent = handle.send_packed_command(&rights.in_full()).await;
                missing = sent.map_err(|error| server.failed(error))?;
            }
            rights::suffice(accepted(missing)?)?;
        }
        answers.try_for_each(|waited| rights::lets_wait(&waited))?;
        Ok(raw)
    }
}

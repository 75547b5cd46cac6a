//! Opens a connection, and sends the first commands on it, before those of callers.

use redis::Value;
use tokio::time::timeout;

use super::endpoint::{Endpoint, RawConnection};
use super::sentinel::FollowedMaster;
use super::wire::Wire;
use super::{Link, is_unknown_script};
use crate::error::StoreError;
use crate::store::redis::protocol::failure::{accepted, transient, unreachable};
use crate::store::redis::protocol::rights;
use crate::store::redis::protocol::role::Role;
use crate::telemetry;

impl Link {
    /// Opens a connection and checks that it can be used. One that cannot be used carries no command: a user who may
    /// write but not expire would take locks that never end.
    pub(super) async fn open(&self, or_replica: bool) -> Result<Wire, StoreError> {
        let connector = &self.context.connector;
        let failed = |error| connector.failed(error);
        // Boxed: a caller that may connect, which is seldom, has a small future.
        let opening = Box::pin(async {
            let (server, master) = connector.locate().await?;
            let (raw, answer) = self.open_at(server, or_replica).await.map_err(failed)?;
            if master.as_ref().is_some_and(FollowedMaster::is_replaced) {
                // The store may have a connection to the new one already, which this one would replace.
                return Err(transient("another server has become the master"));
            }
            let named = master
                .as_ref()
                .map(|followed| followed.master.address.clone());
            let waits = match self.on_push {
                None => self.context.waits.begin(&raw.handle, named, &answer),
                Some(_) => None,
            };
            let up = telemetry::store::connected(self.carries());
            Ok(Wire::new(raw, master, waits, up))
        });
        let opened = timeout(self.context.timeouts().connect, opening).await;
        opened.unwrap_or_else(|_| Err(failed(unreachable("connecting took too long"))))
    }

    /// Opens a connection to this server. Returns it with the answer to the first question about replicas.
    async fn open_at(
        &self,
        server: Endpoint,
        or_replica: bool,
    ) -> Result<(RawConnection, Value), StoreError> {
        let rights = rights::question();
        let questions = match self.on_push {
            None => vec![self.context.waits.greeting(), rights.command.clone()],
            // No script runs on it, and no `WAIT`: its user may have the rights for channels only.
            Some(_) => vec![redis::cmd("PING")],
        };
        let opening = server.open(self.on_push.as_ref(), &questions);
        let (raw, hello, answers) = opening.await?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (answer, mut missing) = (accepted(next())?, next());
        let connector = &self.context.connector;
        connector.expect(Role::read(&hello), or_replica)?;
        if self.on_push.is_some() {
            return Ok((raw, answer));
        }
        if is_unknown_script(&missing) {
            let mut handle = raw.handle.clone();
            let sent = handle.send_packed_command(&rights.in_full()).await;
            missing = sent.map_err(|error| server.failed(error))?;
        }
        rights::suffice(accepted(missing)?)?;
        Ok((raw, answer))
    }
}

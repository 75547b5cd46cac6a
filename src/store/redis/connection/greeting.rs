//! Opens a connection, and sends the first commands on it, before those of callers.

use redis::Value;
use tokio::time::timeout;

use super::super::endpoint::{Endpoint, RawConnection};
use super::super::failure::{accepted, transient, unreachable};
use super::super::rights;
use super::super::role::Role;
use super::super::sentinel::FollowedMaster;
use super::{SharedConnection, is_unknown_script};
use crate::error::StoreError;

/// A connection on which the server has answered.
pub(super) struct NewConnection {
    pub(super) raw: RawConnection,
    pub(super) answer: Value,
    pub(super) master: Option<FollowedMaster>,
}

impl NewConnection {
    /// Fails if another server has become the master meanwhile: the store may have a connection to that one already, which this one
    /// would replace.
    pub(super) fn unless_replaced(self) -> Result<Self, StoreError> {
        let master = self.master.as_ref();
        match master.is_some_and(FollowedMaster::is_replaced) {
            true => Err(transient("another server has become the master")),
            false => Ok(self),
        }
    }
}

impl SharedConnection {
    /// Opens a connection and checks that it can be used. One that cannot be used carries no command: a user who may
    /// write but not expire would take locks that never end.
    pub(super) async fn open(&self, or_replica: bool) -> Result<NewConnection, StoreError> {
        let connector = &self.context.connector;
        let failed = |error| connector.failed(error);
        // Boxed: a caller that may connect, which is seldom, has a small future.
        let opening = Box::pin(async {
            let (server, master) = connector.locate().await?;
            let opening = self.open_at(server, or_replica);
            let (raw, answer) = opening.await.map_err(failed)?;
            let opened = NewConnection {
                raw,
                answer,
                master,
            };
            opened.unless_replaced()
        });
        let limit = self.context.timeouts().connect;
        let opened = timeout(limit, opening).await;
        opened.unwrap_or_else(|_| Err(failed(unreachable("connecting took too long"))))
    }

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
        let (mut raw, hello, answers) = opening.await?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (answer, mut missing) = (accepted(next())?, next());
        self.context
            .connector
            .expect(Role::read(&hello), or_replica)?;
        if self.on_push.is_some() {
            return Ok((raw, answer));
        }
        if is_unknown_script(&missing) {
            let sent = raw.handle.send_packed_command(&rights.in_full()).await;
            missing = sent.map_err(|error| server.failed(error))?;
        }
        rights::suffice(accepted(missing)?)?;
        Ok((raw, answer))
    }
}

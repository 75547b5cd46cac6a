//! Opens a connection, and sends the first commands on it, before those of callers.

use redis::{Pipeline, RedisResult, Value};
use tokio::time::timeout;

use super::super::endpoint::{Endpoint, RawConnection};
use super::super::failure::{accepted, transient, unreachable};
use super::super::role::Role;
use super::super::sentinel::FollowedMaster;
use super::super::{pooled, rights};
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
        let connector = &self.context.connector;
        let rights = rights::question();
        let mut questions = Pipeline::with_capacity(3);
        questions.cmd("HELLO");
        match self.on_push {
            None => questions
                .add_command(self.context.waits.greeting())
                .add_command(rights.command.clone()),
            // No script runs on it, and no `WAIT`: its user may have the rights for channels only.
            Some(_) => questions.cmd("PING"),
        };
        // The target of a pool is unknown: `server` is that of the subscriptions then.
        let pool = connector.pool().filter(|_| self.on_push.is_none());
        let (mut raw, answers) = match pool {
            None => {
                let mut raw = server.open(self.on_push.as_ref()).await?;
                let answers = server.first_answers(&mut raw, &questions).await?;
                (raw, answers)
            }
            Some(pool) => {
                let opening = self.permit.open(pool, self.purpose).await;
                let mut raw = RawConnection::given(opening.map_err(pooled::unavailable)?);
                let answers = raw.ask(&questions).await.map_err(pooled::failed)?;
                (raw, answers)
            }
        };
        let failed = |error| match pool {
            None => server.failed(error),
            Some(_) => pooled::failed(error),
        };
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (role, answer, mut missing) = (Role::read(&next()), next(), next());
        let answer = accepted(answer)?;
        connector.expect(role, or_replica)?;
        if self.on_push.is_some() {
            return Ok((raw, answer));
        }
        if is_unknown_script(&missing) {
            let sent: RedisResult<_> = raw.handle.send_packed_command(&rights.in_full()).await;
            missing = sent.map_err(failed)?;
        }
        rights::suffice(accepted(missing)?)?;
        Ok((raw, answer))
    }
}

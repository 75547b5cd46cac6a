//! Asking one sentinel.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value};

use super::super::timeouts::Timeouts;
use super::super::{failure, tls};
use super::master::Master;
use crate::error::StoreError;

/// One sentinel. Its connection is kept from one question to the next.
pub(super) struct Sentinel {
    address: ConnectionInfo,
    timeouts: Timeouts,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Sentinel {
    pub(super) fn new(address: ConnectionInfo, timeouts: Timeouts) -> Self {
        Self {
            address,
            timeouts,
            connection: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> &ConnectionAddr {
        self.address.addr()
    }

    /// Where this sentinel believes the master to be; `None` if it knows none of that name.
    pub(super) async fn ask(&self, name: &str) -> Result<Option<Master>, StoreError> {
        // The address is the one that counts while a failover goes on; the epoch says which of two sentinels knows more.
        let questions = ["GET-MASTER-ADDR-BY-NAME", "MASTER"];
        master(&self.answers(questions, name).await?)
    }

    /// What this sentinel answers to each of these questions about the master of that name.
    pub(super) async fn answers(
        &self,
        asked: [&str; 2],
        name: &str,
    ) -> Result<Vec<Value>, StoreError> {
        let mut questions = redis::pipe();
        for question in asked {
            questions.cmd("SENTINEL").arg(question).arg(name);
        }
        // Put back by an answer only: one that is silent until the caller goes is not asked again.
        let kept = self.kept().take();
        let answered = match kept {
            Some(connection) => put(connection, &questions).await.ok(),
            None => None,
        };
        let (connection, answers) = match answered {
            Some(answered) => answered,
            None => self.put_anew(&questions).await?,
        };
        *self.kept() = Some(connection);
        Ok(answers)
    }

    async fn put_anew(
        &self,
        questions: &Pipeline,
    ) -> Result<(MultiplexedConnection, Vec<Value>), StoreError> {
        let failed = |error| tls::at(self.address(), failure::no_connection(error));
        let connection = self.connect().await.map_err(failed)?;
        match put(connection, questions).await.map_err(failed) {
            Err(error) => Err(tls::objection(&self.address, self.timeouts, error).await),
            answered => answered,
        }
    }

    pub(super) fn hang_up(&self) {
        *self.kept() = None;
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        Client::open(self.address.clone())?
            .get_multiplexed_async_connection_with_config(&self.timeouts.config())
            .await
    }

    fn kept(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn put(
    mut connection: MultiplexedConnection,
    questions: &Pipeline,
) -> Result<(MultiplexedConnection, Vec<Value>), RedisError> {
    let count = questions.len();
    let answers = connection.send_packed_commands(questions, 0, count).await?;
    Ok((connection, answers))
}

fn master(answers: &[Value]) -> Result<Option<Master>, StoreError> {
    let [address, about] = answers else {
        return Ok(None);
    };
    match address {
        Value::Nil => return Ok(None),
        Value::ServerError(error) => return Err(failure::refusal(error.clone())),
        _ => {}
    }
    let (host, port) = <(String, u16)>::from_redis_value_ref(address)
        .map_err(|error| failure::no_connection(error.into()))?;
    let about: HashMap<String, String> = HashMap::from_redis_value_ref(about).unwrap_or_default();
    let epoch = about
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    Ok(Some(Master {
        host,
        port,
        epoch: epoch.unwrap_or(0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_answer_is_read_in_both_protocols_and_a_name_that_is_unknown_is_no_error() {
        let address = Value::Array(vec![text("10.0.0.1"), text("6379")]);
        let pairs = [(text("name"), text("m")), (text("config-epoch"), text("7"))];
        let list = pairs
            .iter()
            .flat_map(|(name, value)| [name.clone(), value.clone()]);
        for about in [Value::Array(list.collect()), Value::Map(pairs.to_vec())] {
            let found = master(&[address.clone(), about]).unwrap().unwrap();
            assert_eq!(
                (&*found.host, found.port, found.epoch),
                ("10.0.0.1", 6379, 7)
            );
        }
        assert!(master(&[Value::Nil, Value::Nil]).unwrap().is_none());
        assert!(master(&[text("rubbish"), Value::Nil]).is_err());
    }
}

//! Asks one sentinel.

use std::collections::HashMap;

use redis::{ConnectionAddr, FromRedisValue, Value};
use tokio::runtime::{self, Handle};
use tokio::time::timeout;

use super::super::endpoint::{Endpoint, RawConnection};
use super::super::failure;
use super::Master;
use crate::error::StoreError;
use crate::sync::Mutex;

/// One sentinel. Its connection is kept between questions.
pub(super) struct Sentinel {
    endpoint: Endpoint,
    /// Protects the connection that no question uses: a question takes it, and its answer puts it back. Of two at the same
    /// time, the second opens another one, and the later answer decides which is kept.
    kept: Mutex<Option<IdleConnection>>,
}

/// Used only on the runtime that drives it: on another runtime it would wait while the first is busy.
struct IdleConnection {
    runtime: runtime::Id,
    connection: RawConnection,
}

impl Sentinel {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            kept: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> &ConnectionAddr {
        self.endpoint.address()
    }

    /// The master that this sentinel names; `None` if it knows no master of that name.
    pub(super) async fn ask(&self, name: &str) -> Result<Option<Master>, StoreError> {
        // During a failover the address is the valid one; the epoch says which of two sentinels knows the later state.
        let questions = ["GET-MASTER-ADDR-BY-NAME", "MASTER"];
        master(&self.answers(questions, name).await?)
    }

    /// The sentinel's answers to these questions about the master of that name.
    pub(super) async fn answers(
        &self,
        asked: [&str; 2],
        name: &str,
    ) -> Result<Vec<Value>, StoreError> {
        let mut questions = redis::pipe();
        for question in asked {
            questions.cmd("SENTINEL").arg(question).arg(name);
        }
        // Only an answer puts the connection back: one without an answer when the caller is dropped is not used again.
        let mut answered = None;
        if let Some(mut connection) = self.take_kept() {
            let answers = connection.ask(&questions);
            if let Ok(Ok(answers)) = timeout(self.endpoint.timeouts.probe(), answers).await {
                answered = Some((connection, answers));
            }
        }
        let (connection, answers) = match answered {
            Some(answered) => answered,
            None => {
                let mut new = self.endpoint.open(None).await?;
                let answers = self.endpoint.first_answers(&mut new, &questions).await?;
                (new, answers)
            }
        };
        *self.kept.lock() = Some(IdleConnection {
            runtime: Handle::current().id(),
            connection,
        });
        Ok(answers)
    }

    fn take_kept(&self) -> Option<RawConnection> {
        let here = Handle::current().id();
        let mut kept = self.kept.lock();
        let kept = kept.take_if(|kept| kept.runtime == here)?;
        Some(kept.connection)
    }
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
    let epoch = about.get("config-epoch");
    let epoch = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Ok(Some(Master { host, port, epoch }))
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

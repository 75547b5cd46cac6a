//! Asks one sentinel.

use std::collections::HashMap;

use redis::{FromRedisValue, Value};
use tokio::time::timeout;

use super::super::address::Address;
use super::super::endpoint::{Endpoint, RawConnection};
use super::Master;
use crate::error::StoreError;
use crate::store::redis::protocol::failure;

/// The master that a sentinel names; `None` if it knows no master of that name. `kept`: the connection of the last question.
pub(super) async fn ask(
    sentinel: &Endpoint,
    name: &str,
    kept: &mut Option<RawConnection>,
) -> Result<Option<Master>, StoreError> {
    // During a failover the address is the valid one; the epoch says which of two sentinels knows the later state.
    let questions = ["GET-MASTER-ADDR-BY-NAME", "MASTER"];
    master(&answers(sentinel, questions, name, kept).await?)
}

/// The sentinel's answers to these questions about the master of that name.
pub(super) async fn answers(
    sentinel: &Endpoint,
    asked: [&str; 2],
    name: &str,
    kept: &mut Option<RawConnection>,
) -> Result<Vec<Value>, StoreError> {
    let questions = asked.map(|question| redis::cmd("SENTINEL").arg(question).arg(name).to_owned());
    // Only an answer puts the connection back: one without an answer when the caller is dropped is not used again.
    if let Some(mut connection) = kept.take() {
        let answers = connection.ask(&questions);
        if let Ok(Ok(answers)) = timeout(sentinel.timeouts.probe(), answers).await {
            *kept = Some(connection);
            return Ok(answers);
        }
    }
    let (connection, _, answers) = sentinel.open(None, &questions).await?;
    *kept = Some(connection);
    Ok(answers)
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
    let address = Address::new(&host, port);
    Ok(Some(Master { address, epoch }))
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
                (found.address, found.epoch),
                (Address::new("10.0.0.1", 6379), 7)
            );
        }
        assert!(master(&[Value::Nil, Value::Nil]).unwrap().is_none());
        assert!(master(&[text("rubbish"), Value::Nil]).is_err());
    }
}

//! The state of the sentinels, for an audit.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{FromRedisValue, Value};
use tokio::time::timeout;

use super::question::answers;
use super::{SentinelGroup, detail};
use crate::audit::{Sentinels, Warning};
use crate::error::StoreError;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::failure::{self, unreachable};

impl SentinelGroup {
    /// Asks every sentinel, each with the time limit for connecting. Returns the state of those that answer, `None` without any,
    /// and a warning for each of the others.
    pub(in super::super) async fn health(&self) -> (Option<Sentinels>, Vec<Warning>) {
        let endpoints = self.sentinels.iter().map(|sentinel| &sentinel.endpoint);
        let asking = endpoints.map(|sentinel| async move {
            let (questions, mut none) = (["MASTER", "CKQUORUM"], None);
            let answers = answers(sentinel, questions, &self.name, &mut none);
            let answers = timeout(self.server.timeouts.connect, answers).await;
            let answers = answers.unwrap_or_else(|_| Err(unreachable("it took too long")));
            let state = answers.and_then(|answers| state(&answers, self.sentinels.len()));
            state.map_err(|error| silence(sentinel, &error))
        });
        let (mut seen, mut silent) = (None, Vec::new());
        for answer in join_all(asking).await {
            match answer {
                Ok(state) => seen = Some(worst(seen, state)),
                Err(silence) => silent.push(silence),
            }
        }
        (seen, silent)
    }
}

/// The sentinel's address, and why it has not answered.
fn silence(sentinel: &Endpoint, error: &StoreError) -> Warning {
    let sentinel = sentinel.address().to_string();
    let why = detail(error);
    let why = why.strip_prefix(&format!("{sentinel}: ")).unwrap_or(&why);
    Warning::new(
        "sentinel_silent",
        format!("sentinel {sentinel} cannot be used: {why}"),
    )
}

/// The state by the answers of several sentinels.
fn worst(seen: Option<Sentinels>, other: Sentinels) -> Sentinels {
    let Some(seen) = seen else {
        return other;
    };
    Sentinels {
        listed: seen.listed,
        answering: seen.answering + other.answering,
        known: seen.known.max(other.known),
        quorum: seen.quorum.max(other.quorum),
        reachable: seen.reachable.max(other.reachable),
        can_fail_over: seen.can_fail_over.max(other.can_fail_over),
        down_after: seen.down_after.max(other.down_after),
    }
}

/// The state by the answer of one of the `listed` sentinels.
fn state(answers: &[Value], listed: usize) -> Result<Sentinels, StoreError> {
    let [about, reach] = answers else {
        return Err(unreachable("it left a question open"));
    };
    if let Value::ServerError(error) = about {
        return Err(failure::refusal(error.clone()));
    }
    let about: HashMap<String, String> = HashMap::from_redis_value_ref(about)
        .map_err(|error| failure::no_connection(error.into()))?;
    let number = |name: &str| about.get(name).and_then(|text| text.parse::<u64>().ok());
    let count = |name| number(name).and_then(|number| usize::try_from(number).ok());
    let (reachable, can_fail_over) = reached(reach).unzip();
    Ok(Sentinels {
        listed,
        answering: 1,
        // It does not count itself.
        known: count("num-other-sentinels").unwrap_or(0) + 1,
        quorum: count("quorum").unwrap_or(0),
        reachable,
        can_fail_over,
        down_after: Duration::from_millis(number("down-after-milliseconds").unwrap_or(0)),
    })
}

/// Reads `OK 3 usable Sentinels. …`, or the error `NOQUORUM 1 usable Sentinels. …`.
fn reached(answer: &Value) -> Option<(usize, bool)> {
    let (text, enough) = match answer {
        Value::ServerError(error) if error.code() == "NOQUORUM" => (error.details()?, false),
        Value::SimpleString(text) => (text.strip_prefix("OK ")?, true),
        _ => return None,
    };
    let usable = text.split(' ').next()?.parse().ok()?;
    Some((usable, enough))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(quorum: &str, down_after: &str) -> Value {
        let fields = [
            ("num-other-sentinels", "2"),
            ("quorum", quorum),
            ("down-after-milliseconds", down_after),
        ];
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Map(fields.map(|(name, value)| (text(name), text(value))).into())
    }

    #[test]
    fn of_different_answers_the_worst_counts_but_one_is_enough_for_a_failover() {
        let ok = Value::SimpleString("OK 2 usable Sentinels. Quorum and …".to_owned());
        let unknown = Value::SimpleString("something else".to_owned());
        let mut seen = None;
        for (quorum, down_after, reach) in [("2", "30000", &unknown), ("3", "5000", &ok)] {
            let state = state(&[about(quorum, down_after), reach.clone()], 3).unwrap();
            seen = Some(worst(seen, state));
        }
        let seen = seen.unwrap();
        assert_eq!((seen.listed, seen.answering, seen.known), (3, 2, 3));
        assert_eq!((seen.quorum, seen.reachable), (3, Some(2)));
        assert_eq!(seen.can_fail_over, Some(true));
        assert_eq!(seen.down_after, Duration::from_secs(30));
        let lease = seen.lease_that_outlives_failover();
        assert_eq!(lease, Duration::from_secs(45));
    }
}

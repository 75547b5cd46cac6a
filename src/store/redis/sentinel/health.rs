//! The state of the sentinels, for an audit.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{FromRedisValue, Value};
use tokio::time::timeout;

use super::inquiry::Sentinel;
use super::{SentinelGroup, detail};
use crate::audit;
use crate::error::StoreError;
use crate::store::redis::failure::{self, unreachable};

/// The answers of all sentinels together.
pub(in super::super) struct SentinelSurvey {
    /// `None` if no sentinel has answered.
    pub(in super::super) seen: Option<audit::Sentinels>,
    /// The sentinels that have not answered, and why.
    pub(in super::super) silent: Vec<(String, String)>,
}

/// The answer of one sentinel.
struct SentinelHealth {
    /// How many sentinels it knows, including itself.
    known: usize,
    quorum: usize,
    down_after: Duration,
    /// How many it reaches, and whether that is a quorum; `None` if the user may not ask.
    reach: Option<(usize, bool)>,
}

impl SentinelGroup {
    /// Asks every sentinel, each with the time limit for connecting.
    pub(in super::super) async fn survey(&self) -> SentinelSurvey {
        let asking = self.sentinels.iter().map(|sentinel| async {
            let health = timeout(self.timeouts.connect, sentinel.ask_health(&self.name)).await;
            let health = health.unwrap_or_else(|_| Err(silent("it took too long")));
            health.map_err(|error| sentinel.silence(&error))
        });
        let mut survey = SentinelSurvey {
            seen: None,
            silent: Vec::new(),
        };
        for answer in join_all(asking).await {
            match answer {
                Ok(health) => health.add_to(&mut survey.seen, self.sentinels.len()),
                Err(silence) => survey.silent.push(silence),
            }
        }
        survey
    }
}

impl Sentinel {
    async fn ask_health(&self, name: &str) -> Result<SentinelHealth, StoreError> {
        health(&self.answers(["MASTER", "CKQUORUM"], name).await?)
    }

    /// Its address, and why it has not answered.
    fn silence(&self, error: &StoreError) -> (String, String) {
        let address = self.address().to_string();
        let why = detail(error);
        let why = why.strip_prefix(&format!("{address}: ")).unwrap_or(&why);
        (address, why.to_owned())
    }
}

impl SentinelHealth {
    fn add_to(self, seen: &mut Option<audit::Sentinels>, listed: usize) {
        let seen = seen.get_or_insert(audit::Sentinels {
            listed,
            answering: 0,
            known: 0,
            quorum: 0,
            reachable: None,
            can_fail_over: None,
            down_after: Duration::ZERO,
        });
        seen.answering += 1;
        seen.known = seen.known.max(self.known);
        seen.quorum = seen.quorum.max(self.quorum);
        seen.down_after = seen.down_after.max(self.down_after);
        if let Some((reachable, enough)) = self.reach {
            seen.reachable = seen.reachable.max(Some(reachable));
            seen.can_fail_over = seen.can_fail_over.max(Some(enough));
        }
    }
}

fn health(answers: &[Value]) -> Result<SentinelHealth, StoreError> {
    let [about, reach] = answers else {
        return Err(silent("it left a question open"));
    };
    if let Value::ServerError(error) = about {
        return Err(failure::refusal(error.clone()));
    }
    let about: HashMap<String, String> = HashMap::from_redis_value_ref(about)
        .map_err(|error| failure::no_connection(error.into()))?;
    let number = |name: &str| about.get(name).and_then(|text| text.parse::<u64>().ok());
    let count = |name| number(name).and_then(|number| usize::try_from(number).ok());
    Ok(SentinelHealth {
        known: count("num-other-sentinels").unwrap_or(0) + 1,
        quorum: count("quorum").unwrap_or(0),
        down_after: Duration::from_millis(number("down-after-milliseconds").unwrap_or(0)),
        reach: reached(reach),
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

fn silent(why: &'static str) -> StoreError {
    unreachable(why)
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
            let health = health(&[about(quorum, down_after), reach.clone()]).unwrap();
            health.add_to(&mut seen, 3);
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

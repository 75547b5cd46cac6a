//! The state of the sentinels, for an audit.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::audit::Warning;
use crate::error::StoreError;
use crate::store::redis::link::endpoint::Endpoint;
use crate::store::redis::link::sentinel::{SentinelGroup, detail};
use crate::store::redis::protocol::failure::{self, unreachable};

/// The state of a master's sentinels, from their answers. Where these differ, the value is the one that makes a failover hardest, except
/// that one sentinel is enough to begin a failover.
#[derive(Default)]
pub(super) struct Sentinels {
    /// How many the store is configured with.
    pub(super) listed: usize,
    /// How many of these answer.
    answering: usize,
    /// How many there are, by their own count, which includes those that are down, until `SENTINEL RESET`.
    pub(super) known: usize,
    /// How many must agree that the master is down. To replace it, a majority of all must also agree.
    pub(super) quorum: usize,
    /// How many the best-connected one reaches; `None` if the user may not ask.
    pub(super) reachable: Option<usize>,
    /// Whether these are enough to replace the master (`SENTINEL CKQUORUM`); `None` if the user may not ask.
    pub(super) can_fail_over: Option<bool>,
    /// How long a master must be silent before a sentinel considers it down. A failover takes longer than that.
    pub(super) down_after: Duration,
}

impl Sentinels {
    pub(super) fn fact(&self) -> String {
        let reached = match self.can_fail_over {
            Some(true) => " reachable",
            Some(false) => " not reachable",
            None => "",
        };
        format!(
            "{} of {} answer, {} known, quorum {}{reached}, down after {:?}",
            self.answering, self.listed, self.known, self.quorum, self.down_after
        )
    }
}

/// Asks every sentinel. Returns the state of those that answer, `None` without any, and a warning for each of the others.
pub(super) async fn health(group: &SentinelGroup) -> (Option<Sentinels>, Vec<Warning>) {
    let answered = group.ask_each(["MASTER", "CKQUORUM"]).await;
    let mut seen = Sentinels {
        listed: answered.len(),
        ..Sentinels::default()
    };
    let mut silent = Vec::new();
    for (sentinel, answers) in answered {
        if let Err(error) = answers.and_then(|answers| take_in(&mut seen, &answers)) {
            silent.push(silence(sentinel, &error));
        }
    }
    ((seen.answering > 0).then_some(seen), silent)
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

/// Takes in the answers of one sentinel.
fn take_in(seen: &mut Sentinels, answers: &[Value]) -> Result<(), StoreError> {
    let [about, reach] = answers else {
        return Err(unreachable("it left a question open"));
    };
    if let Value::ServerError(error) = about {
        return Err(failure::refusal(error.clone()));
    }
    let about: HashMap<String, String> = HashMap::from_redis_value_ref(about)
        .map_err(|error| failure::no_connection(error.into()))?;
    let number = |name| {
        about
            .get(name)
            .and_then(|text: &String| text.parse::<u64>().ok())
    };
    let count = |name| {
        number(name)
            .and_then(|number| usize::try_from(number).ok())
            .unwrap_or(0)
    };
    let (reachable, can_fail_over) = reached(reach).unzip();
    let down_after = Duration::from_millis(number("down-after-milliseconds").unwrap_or(0));
    seen.answering += 1;
    // It does not count itself.
    seen.known = seen.known.max(count("num-other-sentinels") + 1);
    seen.quorum = seen.quorum.max(count("quorum"));
    seen.reachable = seen.reachable.max(reachable);
    seen.can_fail_over = seen.can_fail_over.max(can_fail_over);
    seen.down_after = seen.down_after.max(down_after);
    Ok(())
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
        let mut seen = Sentinels {
            listed: 3,
            ..Sentinels::default()
        };
        for (quorum, down_after, reach) in [("2", "30000", &unknown), ("3", "5000", &ok)] {
            take_in(&mut seen, &[about(quorum, down_after), reach.clone()]).unwrap();
        }
        assert_eq!((seen.listed, seen.answering, seen.known), (3, 2, 3));
        assert_eq!((seen.quorum, seen.reachable), (3, Some(2)));
        assert_eq!(seen.can_fail_over, Some(true));
        assert_eq!(seen.down_after, Duration::from_secs(30));
        let fact = "2 of 3 answer, 3 known, quorum 3 reachable, down after 30s";
        assert_eq!(seen.fact(), fact);
    }
}

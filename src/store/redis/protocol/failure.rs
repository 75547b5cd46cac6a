//! What a failure of Redis means for the operation.

use redis::{ErrorKind, RedisError, ServerError, Value};

use crate::error::{BoxError, StoreError, StoreErrorKind};

/// The server, or a setting, does not allow it. It has had no effect.
pub(crate) fn refused(why: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, why)
}

/// No server can serve now. It has had no effect.
pub(crate) fn transient(why: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::Transient, why)
}

/// It reached no server, and has had no effect.
pub(crate) fn unreachable(why: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, why)
}

/// The server answered with an error, so it has not executed the command.
pub(crate) fn refusal(error: ServerError) -> StoreError {
    let kind = meaning(error.code(), error.details());
    let lacks_right = |code: &str| (code == "NOPERM").then_some(());
    match by_code(error.code(), error.details(), lacks_right) {
        Some(()) => StoreError::new(kind, LacksRight(error)),
        None => StoreError::new(kind, error),
    }
}

/// The server's text does not say which right it is.
#[derive(Debug, thiserror::Error)]
#[error(
    "the Redis user lacks a right: the rules of `RedisStore::acl_rules` need the prefix of this lock's name, `.announce()` for \
     announced processes, and `.admin()` for `LockAdmin` and the console"
)]
struct LacksRight(#[source] ServerError);

/// An answer that is no error.
pub(crate) fn accepted(answer: Value) -> Result<Value, StoreError> {
    match answer {
        Value::ServerError(error) => Err(refusal(error)),
        answer => Ok(answer),
    }
}

/// Why a connection is replaced on which such an answer has come.
pub(crate) const REFUSES: &str = "its server refuses commands on it";

/// Whether the server is a replica and refuses writes, or the credentials of the connection have expired.
pub(crate) fn needs_another_connection(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else {
        return false;
    };
    by_code(error.code(), error.details(), |code| {
        matches!(code, "READONLY" | "MASTERDOWN" | "NOAUTH").then_some(())
    })
    .is_some()
}

/// The error for a connection that could not be opened, or for an answer on it that has another form.
pub(crate) fn no_connection(error: RedisError) -> StoreError {
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => StoreErrorKind::Refused,
        ErrorKind::Server(_) | ErrorKind::Extension => {
            meaning(error.code().unwrap_or_default(), error.detail())
        }
        // A server at its connection limit sends this instead of an answer, so the `redis` crate does not
        // parse it as one.
        _ if says_full(&error.to_string()) => StoreErrorKind::Transient,
        _ => StoreErrorKind::Unreachable,
    };
    StoreError::new(kind, error)
}

/// Whether a server of a Cluster has some of the keys of a script, and another server has the others: their slot is being moved.
/// The last refusal is that of either server.
pub(crate) fn is_split(error: &StoreError) -> bool {
    let source = std::error::Error::source(error);
    let refusal = source.and_then(|source| source.downcast_ref::<ServerError>());
    refusal.is_some_and(|refusal| matches!(refusal.code(), "TRYAGAIN" | "ASK"))
}

/// Picks the more informative of two failures: a refusal before a missing answer.
pub(crate) fn more_telling(known: Option<StoreError>, other: StoreError) -> StoreError {
    match known {
        Some(known) if other.kind() != StoreErrorKind::Refused => known,
        _ => other,
    }
}

fn meaning(code: &str, details: Option<&str>) -> StoreErrorKind {
    if details.is_some_and(says_full) {
        return StoreErrorKind::Transient;
    }
    // A script stopped in the middle, at a key that had moved to another node.
    if details.is_some_and(|details| details.contains("non local key")) {
        return StoreErrorKind::Unanswered;
    }
    by_code(code, details, |code| match code {
        "WRONGTYPE" => Some(StoreErrorKind::Conflict),
        "LOADING" | "BUSY" | "READONLY" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "MOVED"
        | "ASK" | "NOREPLICAS" => Some(StoreErrorKind::Transient),
        _ => None,
    })
    .unwrap_or(StoreErrorKind::Refused)
}

/// What `known` says of the code of an error. Redis 6.2 puts the code of a command that failed inside a script into the text of
/// the script's error, and so does every version for an error that a script raises again.
fn by_code<T>(code: &str, details: Option<&str>, known: impl Fn(&str) -> Option<T>) -> Option<T> {
    let of_script = || details.filter(|text| code == "ERR" && text.contains("user_script"));
    known(code).or_else(|| {
        let mut words = of_script()?.split(|c: char| !c.is_ascii_alphabetic());
        words.find_map(&known)
    })
}

/// Whether the server is at its connection limit.
pub(crate) fn is_full(error: &ServerError) -> bool {
    error.details().is_some_and(says_full)
}

fn says_full(text: &str) -> bool {
    text.contains("max number of clients")
}

#[cfg(test)]
mod tests;

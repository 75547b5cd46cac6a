//! What a failure of Redis means for the operation that met it.

use redis::{ErrorKind, RedisError, ServerError};

use super::tls;
use crate::error::{StoreError, StoreErrorKind};

/// The server answered with an error: whatever it says, it has not done what it was asked to.
pub(super) fn refusal(error: ServerError) -> StoreError {
    StoreError::new(meaning(error.code(), error.details()), error)
}

/// The server follows another one, and takes no orders of ours.
pub(super) fn is_demotion(error: &ServerError) -> bool {
    match error.code() {
        "READONLY" | "MASTERDOWN" => true,
        // Redis 6.2, from inside a script.
        "ERR" => error
            .details()
            .is_some_and(|text| text.contains("-READONLY")),
        _ => false,
    }
}

/// No connection could be had.
pub(super) fn no_connection(error: RedisError) -> StoreError {
    if let Some(distrust) = tls::distrust(&error) {
        return distrust;
    }
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => StoreErrorKind::Refused,
        ErrorKind::Server(_) | ErrorKind::Extension => {
            meaning(error.code().unwrap_or_default(), error.detail())
        }
        // The greeting of a server that is full is no answer to a question, so it is not read as one.
        _ if says_full(&error.to_string()) => StoreErrorKind::Transient,
        _ => StoreErrorKind::Unreachable,
    };
    StoreError::new(kind, error)
}

/// Of two failures to ask the same of several servers, the one that tells more: a refusal than a silence.
pub(super) fn more_telling(known: Option<StoreError>, other: StoreError) -> StoreError {
    match known {
        Some(known) if other.kind() != StoreErrorKind::Refused => known,
        _ => other,
    }
}

/// A master that cannot be reached is about to be replaced, so it is worth asking again.
pub(super) fn failing_over(error: StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::Unreachable => StoreError::new(StoreErrorKind::Transient, error),
        _ => error,
    }
}

fn meaning(code: &str, detail: Option<&str>) -> StoreErrorKind {
    let detail = detail.unwrap_or_default();
    if says_full(detail) {
        return StoreErrorKind::Transient;
    }
    match by_code(code) {
        // Redis 6.2 hides the code of a command that failed inside a script in the text of its error.
        None if code == "ERR" && detail.contains("user_script") => detail
            .split(|c: char| !c.is_ascii_alphabetic())
            .find_map(by_code),
        kind => kind,
    }
    .unwrap_or(StoreErrorKind::Refused)
}

fn by_code(code: &str) -> Option<StoreErrorKind> {
    match code {
        "WRONGTYPE" => Some(StoreErrorKind::Conflict),
        "LOADING" | "BUSY" | "READONLY" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "MOVED"
        | "ASK" | "NOREPLICAS" => Some(StoreErrorKind::Transient),
        "OOM" | "NOPERM" | "NOAUTH" | "WRONGPASS" | "MISCONF" | "CROSSSLOT" => {
            Some(StoreErrorKind::Refused)
        }
        _ => None,
    }
}

fn says_full(text: &str) -> bool {
    text.contains("max number of clients")
}

#[cfg(test)]
mod tests {
    use super::*;
    use StoreErrorKind::{Conflict, Refused, Transient};

    #[test]
    fn an_error_is_known_by_its_code_even_inside_a_script() {
        for (code, detail, expected) in [
            (
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value",
                Conflict,
            ),
            (
                "LOADING",
                "Redis is loading the dataset in memory",
                Transient,
            ),
            ("BUSY", "Redis is busy running a script", Transient),
            (
                "READONLY",
                "You can't write against a read only replica.",
                Transient,
            ),
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'.",
                Refused,
            ),
            ("NOPERM", "this user has no permissions", Refused),
            ("ERR", "max number of clients reached", Transient),
            ("ERR", "unknown command", Refused),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:7: WRONGTYPE Operation against",
                Conflict,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:7: -OOM command not allowed",
                Refused,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:7: -READONLY You can't",
                Transient,
            ),
            (
                "ERR",
                "user_script:7: WRONGTYPE the fencing counter is not a number",
                Conflict,
            ),
        ] {
            assert_eq!(meaning(code, Some(detail)), expected, "{code} {detail}");
        }
    }
}

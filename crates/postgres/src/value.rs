//! Values on their way to PostgreSQL and back.

use std::time::Duration;

use tower_distributed_lock::LockMode;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::{Hold, LockFamily};
use tower_distributed_lock::store::Attempt;

/// The longest time that is written: longer than any process lives, and still an instant that PostgreSQL can name.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Microseconds, rounded up: a hold must not live shorter in the store than its client believes.
pub(crate) fn micros(duration: Duration) -> i64 {
    let micros = duration.min(FAR).as_nanos().div_ceil(1000);
    i64::try_from(micros).expect("a hundred years")
}

pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.try_into().unwrap_or_default())
}

/// What names holds, as columns: keys, modes, ids.
pub(crate) struct Names<'a> {
    pub(crate) keys: Vec<&'a str>,
    pub(crate) modes: Vec<&'static str>,
    pub(crate) ids: Vec<String>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(holds: impl IntoIterator<Item = &'a Hold>) -> Self {
        let mut names = Self {
            keys: Vec::new(),
            modes: Vec::new(),
            ids: Vec::new(),
        };
        for hold in holds {
            names.keys.push(hold.key.as_str());
            names.modes.push(hold.mode.as_str());
            names.ids.push(hold.id.to_string());
        }
        names
    }
}

/// What wakes an attempt, as `schema.sql` sends it.
pub(crate) fn channel(attempt: &Attempt) -> String {
    let Hold { key, mode, id } = &attempt.hold;
    match mode.family() {
        _ if *mode == LockMode::Fair => format!("fair {id} {key}"),
        LockFamily::Exclusive => format!("exclusive {key}"),
        _ => format!("readwrite {key}"),
    }
}

/// What a verdict other than `granted` and `refused` means.
pub(crate) fn failure(verdict: &str) -> StoreError {
    match verdict {
        "withdrawn" => StoreError::new(
            StoreErrorKind::Refused,
            "the attempt was withdrawn before it arrived",
        ),
        "conflict" => StoreError::new(
            StoreErrorKind::Conflict,
            "the key is held by a lock of another family",
        ),
        other => StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "the verdict {other:?} is unknown: is the schema `tower_lock` of this version?"
            ),
        ),
    }
}

/// What an error of PostgreSQL means for a question that may have been asked.
pub(crate) fn asked(error: tokio_postgres::Error) -> StoreError {
    use tokio_postgres::error::SqlState;
    let kind = match error.code() {
        // The connection ended, or the server did while it answered.
        None => StoreErrorKind::Unanswered,
        Some(state)
            if [
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
            ]
            .contains(state) =>
        {
            StoreErrorKind::Unanswered
        }
        Some(state) => match &state.code()[..2] {
            // A proxy has lost its connection to the server.
            "08" => StoreErrorKind::Unanswered,
            // Serialization, resources, an operator, a server that starts.
            "40" | "53" | "55" | "57" | "58" => StoreErrorKind::Transient,
            // A standby, which may be promoted soon.
            _ if *state == SqlState::READ_ONLY_SQL_TRANSACTION => StoreErrorKind::Transient,
            _ => StoreErrorKind::Refused,
        },
    };
    StoreError::new(kind, error)
}

//! Exit codes, and the failures behind them.

use std::error::Error;

use tower_distributed_lock::LockError;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};

use crate::messages::warn;

/// The exit codes of lockctl itself. docs/lockctl.md and the help texts list them; they do not change.
///
/// Usage errors have the code of `sysexits.h`. The other codes avoid those that commands use: `sysexits.h` ends at 78;
/// `timeout`, shells and signals begin at 124.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// There was nothing to show or to break, or the user did not confirm, or another had the lock by then.
    Nothing = 1,
    /// `EX_USAGE`.
    Usage = 64,
    /// `EX_OSERR`.
    System = 71,
    /// `EX_IOERR`.
    Output = 74,
    Busy = 80,
    Unavailable = 81,
    Lost = 82,
    Unconfirmed = 83,
    Refused = 84,
}

/// Why lockctl did not do its work: the exit code, and the message, which is empty after a signal.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            code: exit as u8,
            message: message.into(),
        }
    }

    /// A signal has ended lockctl, with this exit code.
    pub(crate) fn stopped(code: u8) -> Self {
        let message = String::new();
        Self { code, message }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Shows the message, and returns the code.
    pub(crate) fn report(&self) -> u8 {
        if !self.message.is_empty() {
            warn(self);
        }
        self.code
    }

    /// The same message with another code, if it has the code of `exit`.
    pub(crate) fn with_code_for(self, exit: Exit, code: Option<u8>) -> Self {
        match code {
            Some(code) if self.code == exit as u8 => Self { code, ..self },
            _ => self,
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let exit = match &error {
            LockError::Busy { .. } | LockError::Overloaded => Exit::Busy,
            LockError::Lost => Exit::Lost,
            LockError::Unavailable(store) => of_store(store.kind()),
            LockError::Unconfirmed(_) => Exit::Unconfirmed,
            LockError::Invalid(_) => Exit::Usage,
            LockError::Shutdown => Exit::Unavailable,
            _ => Exit::Refused,
        };
        Self::new(exit, with_causes(&error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(of_store(error.kind()), with_causes(&error))
    }
}

fn of_store(kind: StoreErrorKind) -> Exit {
    match kind {
        StoreErrorKind::Refused | StoreErrorKind::Conflict => Exit::Refused,
        _ => Exit::Unavailable,
    }
}

/// An error with its causes. A cause that its error repeats is left out.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    for_the_shell(&text)
}

/// Replaces names of Rust in a text of the library by those of the command line.
pub(crate) fn for_the_shell(text: &str) -> String {
    const NAMES: [(&str, &str); 11] = [
        ("`RedisStore::cluster`", "--cluster"),
        ("`RedisStore::sentinel`", "--sentinel MASTER"),
        ("`RedisStore::acl_rules`", "`lockctl acl`"),
        ("`.announce()`", "`--announce`"),
        ("`.admin()`", "`--admin`"),
        ("`LockAdmin`", "`show`, `ls`, `watch`, `break`"),
        ("`LockAdmin::force_unlock`", "`lockctl break`"),
        ("`LockMode::Reentrant`", "`--mode reentrant`"),
        ("`LockMode::Fair`", "`--mode fair`"),
        ("`LockMode::Permit`", "`--permits`"),
        // lockctl has no such option.
        (
            "(`RedisStoreBuilder::replicas`)",
            "(`RedisStoreBuilder::replicas` in the services)",
        ),
    ];
    let replaced = |text: String, (from, to): (&str, &str)| text.replace(from, to);
    NAMES.into_iter().fold(text.to_owned(), replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_store_is_shown_with_its_causes() {
        let error = StoreError::new(StoreErrorKind::Unreachable, "connection refused");
        let failure = Failure::from(LockError::from(error));
        assert_eq!(failure.code(), 81);
        let said = "the lock store is unavailable: the store cannot be reached: connection refused";
        assert_eq!(failure.to_string(), said);
    }

    #[test]
    fn a_failure_that_waiting_does_not_end_has_a_code_of_its_own() {
        let refused = StoreError::new(StoreErrorKind::Refused, "NOAUTH");
        assert_eq!(Failure::from(refused).code(), 84);
        let conflict = StoreError::new(StoreErrorKind::Conflict, "a string");
        assert_eq!(Failure::from(LockError::from(conflict)).code(), 84);
        let silence = StoreError::new(StoreErrorKind::Unanswered, "silence");
        assert_eq!(Failure::from(LockError::Unconfirmed(silence)).code(), 83);
    }

    #[test]
    fn only_the_code_of_a_busy_lock_is_chosen_by_the_caller() {
        let busy = Failure::from(LockError::Busy { retry_after: None });
        assert_eq!(busy.with_code_for(Exit::Busy, Some(0)).code(), 0);
        let lost = Failure::from(LockError::Lost);
        assert_eq!(lost.with_code_for(Exit::Busy, Some(0)).code(), 82);
    }
}

//! The rights of a connection's user, checked before the first lock.

use redis::Value;

use super::failure::refused;
use super::names::Name;
use super::reply::read;
use super::script::{self, Call};
use crate::error::StoreError;

/// The key of the check. [`AclRules`](crate::store::redis::AclRules) have it, so that the check leaves nothing in the server's log of
/// refusals.
pub(crate) const SCRATCH: &str = "tower_lock_rights";

/// The commands that the user of a connection may not run. Its locks could stay for ever, so it takes none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Redis user lacks rights: grant it {}", .0.join(" "))]
pub struct MissingRights(Vec<String>);

impl MissingRights {
    /// The rules that are missing, such as `+pexpire`.
    pub fn rules(&self) -> &[String] {
        &self.0
    }
}

/// Asks for the missing rights.
pub(crate) fn question() -> Call {
    script::RIGHTS.call::<Name<'_>>([]).arg(SCRATCH)
}

/// Reads the answer to [`question`].
pub(crate) fn missing(answer: Value) -> Result<Vec<String>, StoreError> {
    let rule = |right: String| match right.starts_with('&') {
        true => right,
        false => format!("+{}", right.to_lowercase()),
    };
    let rights: Vec<String> = read(answer)?;
    Ok(rights.into_iter().map(rule).collect())
}

/// Refuses a user without all rights that locks need.
pub(crate) fn suffice(answer: Value) -> Result<(), StoreError> {
    match missing(answer)? {
        missing if missing.is_empty() => Ok(()),
        missing => Err(refused(MissingRights(missing))),
    }
}

/// The missing rights because of which a connection was not used.
pub(crate) fn found_missing(error: &StoreError) -> Option<Vec<String>> {
    let source = std::error::Error::source(error)?;
    let missing = source.downcast_ref::<MissingRights>()?;
    Some(missing.0.clone())
}

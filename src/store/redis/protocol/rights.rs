//! The rights of a connection's user, checked before the first lock.

use redis::{Cmd, ServerErrorKind, Value};

use super::channels::Channels;
use super::failure::refused;
use super::names::Name;
use super::reply::read;
use super::script::{self, Call};
use crate::error::StoreError;

/// The key of the check. [`AclRules`](crate::store::redis::AclRules) have it, so that the check leaves nothing in the server's log of
/// refusals.
pub(crate) const SCRATCH: &str = "tower_lock_rights";

/// The commands that the user of a connection may not run. Its locks could stay for ever, so it takes none.
#[derive(Debug, thiserror::Error)]
#[error("the Redis user lacks rights: grant it {}", .0.join(" "))]
struct MissingRights(Vec<String>);

/// Asks for the missing rights of a store whose releases are published on such channels; `None`: the server's version decides.
pub(crate) fn question(channels: Option<Channels>) -> Call {
    let call = script::RIGHTS.call::<Name<'_>>([]).arg(SCRATCH);
    match channels {
        Some(channels) => call.arg(channels),
        None => call,
    }
}

/// Asks whether the user may wait for replicas. It waits for none.
pub(crate) fn may_wait() -> Cmd {
    redis::cmd("WAIT").arg(0).arg(0).to_owned()
}

/// Reads the answer to [`question`]. Refuses a user without all rights that locks need.
pub(crate) fn suffice(answer: Value) -> Result<(), StoreError> {
    let rule = |right: String| match right.starts_with('&') {
        true => right,
        false => format!("+{}", right.to_lowercase()),
    };
    let missing: Vec<String> = read(answer)?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(refused(MissingRights(
            missing.into_iter().map(rule).collect(),
        ))),
    }
}

/// Reads the answer to [`may_wait`]. A replica refuses the command to every user.
pub(crate) fn lets_wait(answer: &Value) -> Result<(), StoreError> {
    match answer {
        Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoPerm) => {
            Err(refused(MissingRights(vec!["+wait".to_owned()])))
        }
        _ => Ok(()),
    }
}

/// Whether it is the error of a user who lacks rights.
pub(crate) fn are_missing(error: &StoreError) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<MissingRights>)
}

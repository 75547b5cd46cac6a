//! The first commands on a new connection, before those of callers.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

use super::super::role::Role;
use super::super::{failure, rights};
use super::is_unknown_script;
use crate::error::StoreError;

/// Sends `command`, and asks for the server's role.
pub(super) async fn ask(
    handle: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<(Value, Option<Role>), StoreError> {
    let mut both = redis::Pipeline::with_capacity(2);
    both.cmd("HELLO").add_command(command.clone());
    let mut answers = answered(handle.send_packed_commands(&both, 0, 2).await)?.into_iter();
    // If the server does not know the command, as a proxy may not, the role is what the address
    // implies.
    let role = answers.next().as_ref().and_then(Role::read);
    let answer = failure::accepted(answers.next().unwrap_or(Value::Nil))?;
    Ok((answer, role))
}

/// Checks that the user has all rights that locks need.
pub(super) async fn check_rights(handle: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let rights = rights::question();
    let mut answer = answered(handle.send_packed_command(&rights.command).await)?;
    if is_unknown_script(&answer) {
        answer = answered(handle.send_packed_command(&rights.in_full()).await)?;
    }
    rights::suffice(failure::accepted(answer)?)
}

fn answered<T>(answer: RedisResult<T>) -> Result<T, StoreError> {
    answer.map_err(failure::no_connection)
}

//! Several attempts, or the ends of several holds, in one script.

use redis::Value;

use super::calls;
use super::channels::Channels;
use super::reply::{outcome, unexpected_reply};
use super::script::{self, Call, Script};
use crate::error::StoreError;
use crate::lock::{Hold, LockMode};
use crate::store::{Attempt, Grant, Outcome, SeveralOutcome};

/// Asks several questions by one script.
pub(super) fn acquire(script: &'static Script, attempts: &[Attempt], publish: Channels) -> Call {
    let calls = attempts.iter().map(|attempt| {
        let impatient = Attempt {
            patience: None,
            ..attempt.clone()
        };
        (attempt.hold.mode, calls::acquire(&impatient, publish))
    });
    joined(script, &calls.collect::<Vec<_>>())
}

/// Releases several holds by one script.
pub(super) fn release<'a>(holds: impl Iterator<Item = &'a Hold>, publish: Channels) -> Call {
    let calls = holds.map(|hold| (hold.mode, calls::release(hold, publish)));
    joined(&script::RELEASE_SEVERAL, &calls.collect::<Vec<_>>())
}

/// Joins several calls into one call of `script`. The script passes each call's keys and arguments to the
/// script of its mode.
fn joined(script: &'static Script, calls: &[(LockMode, Call)]) -> Call {
    let keys: Vec<_> = calls.iter().flat_map(|(_, call)| call.keys()).collect();
    let call = script.call_with_words(keys.into_iter());
    calls.iter().fold(call, |call, (mode, one)| {
        let head = call.arg((mode.as_str(), one.keys().len(), one.args().len()));
        one.args().fold(head, Call::arg)
    })
}

/// Reads the answer of the script that releases several holds: one answer per hold.
pub(super) fn released(answer: &Value, expected: usize) -> Result<&[Value], StoreError> {
    match answer {
        Value::Array(answers) if answers.len() == expected => Ok(answers),
        _ => Err(unexpected_reply(answer)),
    }
}

/// Reads the answer of the script that grants all or nothing.
pub(super) fn all(answer: &Value, attempts: &[Attempt]) -> Result<SeveralOutcome, StoreError> {
    let (index, answer) = indexed(answer)?;
    let Some(index) = index else {
        let Value::Array(grants) = answer else {
            return Err(unexpected_reply(answer));
        };
        if grants.len() != attempts.len() {
            return Err(unexpected_reply(answer));
        }
        let grants = grants.iter().zip(attempts).enumerate();
        let grants = grants.map(|(index, (grant, attempt))| {
            match outcome(grant, attempt.hold.mode.family())? {
                Outcome::Granted { token } => Ok(Grant { index, token }),
                Outcome::Refused { .. } => Err(unexpected_reply(answer)),
            }
        });
        return Ok(SeveralOutcome::Granted(grants.collect::<Result<_, _>>()?));
    };
    let attempt = attempts
        .get(index)
        .ok_or_else(|| unexpected_reply(answer))?;
    match outcome(answer, attempt.hold.mode.family())? {
        Outcome::Refused { retry_after } => Ok(SeveralOutcome::Refused {
            index: Some(index),
            retry_after,
        }),
        Outcome::Granted { .. } => Err(unexpected_reply(answer)),
    }
}

/// Reads the answer of the script that grants the first free key.
pub(super) fn any(answer: &Value, attempts: &[Attempt]) -> Result<SeveralOutcome, StoreError> {
    let (index, answer) = indexed(answer)?;
    let attempt = attempts.get(index.unwrap_or(0));
    let attempt = attempt.ok_or_else(|| unexpected_reply(answer))?;
    match (index, outcome(answer, attempt.hold.mode.family())?) {
        (Some(index), Outcome::Granted { token }) => {
            Ok(SeveralOutcome::Granted(vec![Grant { index, token }]))
        }
        (None, Outcome::Refused { retry_after }) => Ok(SeveralOutcome::Refused {
            index: None,
            retry_after,
        }),
        _ => Err(unexpected_reply(answer)),
    }
}

/// Reads an answer that begins with the number of its attempt; 0 means all of them.
fn indexed(answer: &Value) -> Result<(Option<usize>, &Value), StoreError> {
    let parts = match answer {
        Value::Array(parts) => &parts[..],
        _ => &[],
    };
    match parts {
        [Value::Int(number), answer] => {
            let number = usize::try_from(*number).map_err(|_| unexpected_reply(answer))?;
            Ok((number.checked_sub(1), answer))
        }
        _ => Err(unexpected_reply(answer)),
    }
}

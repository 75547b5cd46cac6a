//! Several attempts in one script.

use redis::Value;

use super::calls;
use super::channels::Channels;
use super::reply::{outcome, unintelligible};
use super::script::{Call, Script};
use crate::error::StoreError;
use crate::store::{AllOutcome, AnyOutcome, Attempt, Outcome};

/// Asks several questions by a script that takes the keys and arguments of each, as the script of its mode does.
pub(super) fn acquire(script: &'static Script, attempts: &[Attempt], publish: Channels) -> Call {
    let calls: Vec<_> = attempts
        .iter()
        .map(|attempt| {
            let impatient = Attempt {
                patience: None,
                ..attempt.clone()
            };
            (attempt.hold.mode, calls::acquire(&impatient, publish))
        })
        .collect();
    let keys = calls.iter().map(|(_, call)| call.keys().len()).sum();
    let args = calls.iter().map(|(_, call)| 3 + call.args().len()).sum();
    let words = calls
        .iter()
        .flat_map(|(_, call)| call.keys().chain(call.args()));
    let bytes = words.map(|word| word.len() + 16).sum();

    let call = script.call_with_capacity(keys, args, bytes);
    let call = calls
        .iter()
        .flat_map(|(_, call)| call.keys())
        .fold(call, Call::arg);
    calls.iter().fold(call, |call, (mode, one)| {
        let head = call
            .arg(mode.as_str())
            .arg(one.keys().len())
            .arg(one.args().len());
        one.args().fold(head, Call::arg)
    })
}

/// Reads the answer of the script that grants all or nothing.
pub(super) fn all(answer: &Value, attempts: &[Attempt]) -> Result<AllOutcome, StoreError> {
    let (index, answer) = indexed(answer)?;
    let Some(index) = index else {
        let Value::Array(grants) = answer else {
            return Err(unintelligible(answer));
        };
        let tokens = grants.iter().zip(attempts).map(|(grant, attempt)| {
            match outcome(grant, attempt.hold.mode.family())? {
                Outcome::Granted { token } => Ok(token),
                Outcome::Refused { .. } => Err(unintelligible(answer)),
            }
        });
        return Ok(AllOutcome::Granted(tokens.collect::<Result<_, _>>()?));
    };
    let attempt = attempts.get(index).ok_or_else(|| unintelligible(answer))?;
    match outcome(answer, attempt.hold.mode.family())? {
        Outcome::Refused { retry_after } => Ok(AllOutcome::Refused { index, retry_after }),
        Outcome::Granted { .. } => Err(unintelligible(answer)),
    }
}

/// Reads the answer of the script that grants the first that is free.
pub(super) fn any(answer: &Value, attempts: &[Attempt]) -> Result<AnyOutcome, StoreError> {
    let (index, answer) = indexed(answer)?;
    let attempt = attempts.get(index.unwrap_or(0));
    let attempt = attempt.ok_or_else(|| unintelligible(answer))?;
    match (index, outcome(answer, attempt.hold.mode.family())?) {
        (Some(index), Outcome::Granted { token }) => Ok(AnyOutcome::Granted { index, token }),
        (None, Outcome::Refused { retry_after }) => Ok(AnyOutcome::Refused { retry_after }),
        _ => Err(unintelligible(answer)),
    }
}

/// An answer that begins with the number of the attempt that it is about; 0 for all of them.
fn indexed(answer: &Value) -> Result<(Option<usize>, &Value), StoreError> {
    let parts = match answer {
        Value::Array(parts) => &parts[..],
        _ => &[],
    };
    match parts {
        [Value::Int(number), answer] => {
            let number = usize::try_from(*number).map_err(|_| unintelligible(answer))?;
            Ok((number.checked_sub(1), answer))
        }
        _ => Err(unintelligible(answer)),
    }
}

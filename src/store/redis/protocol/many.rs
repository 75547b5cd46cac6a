//! Several attempts in one script.

use redis::Value;

use super::calls;
use super::channels::Channels;
use super::reply::{self, unexpected_reply};
use super::script::{self, Call};
use crate::error::StoreError;
use crate::store::{Attempt, Grant, Outcome, SeveralOutcome, Want};

/// Asks several questions by one script. It passes each call's keys and arguments to the question of its mode.
pub(crate) fn acquire(attempts: &[Attempt], want: Want, publish: Channels) -> Call {
    let want = match want {
        Want::All => "all",
        Want::Any => "any",
    };
    let calls = attempts.iter().map(|attempt| {
        let impatient = Attempt {
            patience: None,
            ..attempt.clone()
        };
        (attempt.hold.mode, calls::acquire(&impatient, publish))
    });
    let calls: Vec<_> = calls.collect();
    let keys: Vec<_> = calls.iter().flat_map(|(_, call)| call.keys()).collect();
    let call = script::ACQUIRE_SEVERAL.call(keys).arg(want);
    calls.iter().fold(call, |call, (mode, one)| {
        let head = call.arg((mode.as_str(), one.keys().len(), one.args().len()));
        one.args().fold(head, Call::arg)
    })
}

/// Reads the answer to [`acquire`]: the number of an attempt, and the answer to it. The number 0 stands for all attempts: all are
/// granted, each with an answer, or none of any.
pub(crate) fn outcome(
    answer: &Value,
    attempts: &[Attempt],
    want: Want,
) -> Result<SeveralOutcome, StoreError> {
    let misfit = || unexpected_reply(answer);
    let Some([Value::Int(number), about]) = answer.as_sequence() else {
        return Err(misfit());
    };
    let index = usize::try_from(*number).map_err(|_| misfit())?;
    let index = index.checked_sub(1);
    if let (Want::All, None) = (want, index) {
        let grants = about.as_sequence().ok_or_else(misfit)?;
        if grants.len() != attempts.len() {
            return Err(misfit());
        }
        let grants = grants.iter().enumerate();
        let grants = grants.map(|(index, grant)| match reply::outcome(grant)? {
            Outcome::Granted { token } => Ok(Grant { index, token }),
            Outcome::Refused { .. } => Err(misfit()),
        });
        return Ok(SeveralOutcome::Granted(grants.collect::<Result<_, _>>()?));
    }
    if index.is_some_and(|index| index >= attempts.len()) {
        return Err(misfit());
    }
    match (want, index, reply::outcome(about)?) {
        (Want::Any, Some(index), Outcome::Granted { token }) => {
            Ok(SeveralOutcome::Granted(vec![Grant { index, token }]))
        }
        (Want::Any, None, Outcome::Refused { retry_after })
        | (Want::All, Some(_), Outcome::Refused { retry_after }) => {
            Ok(SeveralOutcome::Refused { index, retry_after })
        }
        _ => Err(misfit()),
    }
}

//! The answers of the scripts.

use std::fmt;
use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value};

use crate::error::{StoreError, StoreErrorKind};
use crate::lock::FencingToken;
use crate::store::{HoldStatus, Outcome, Released, other_limit};

/// The codes of the acquiring scripts; lua/README.md names them.
const GRANTED: i64 = 0;
const REFUSED: i64 = 1;
const WITHDRAWN: i64 = 2;
const OTHER_FAMILY: i64 = 3;
const ENDLESS: i64 = 4;
const NO_LOCK: i64 = 5;
const OTHER_LIMIT: i64 = 6;

/// The code of a releasing script for a hold that has ended while its key has other data.
const NOT_ALONE: i64 = -1;

/// Reads the answer of an acquiring script.
pub(crate) fn outcome(answer: &Value) -> Result<Outcome, StoreError> {
    let (code, value) = match (answer, answer.as_sequence()) {
        (Value::Int(code), _) => (*code, None),
        (_, Some([Value::Int(code), Value::Int(value), ..])) => (*code, Some(*value)),
        _ => return Err(unexpected_reply(answer)),
    };
    match (code, value) {
        (GRANTED, token) => Ok(Outcome::Granted {
            token: token.map(|token| FencingToken::new(token.unsigned_abs())),
        }),
        (REFUSED, Some(left)) => Ok(Outcome::Refused {
            retry_after: Duration::from_millis(u64::try_from(left).unwrap_or(0).max(1)),
        }),
        (WITHDRAWN, _) => Err(StoreError::new(
            StoreErrorKind::Refused,
            "the attempt was withdrawn before it arrived",
        )),
        (OTHER_FAMILY, _) => Err(conflict(
            "the key holds a lock of another kind (exclusive, read-write or permits) or data of the application: use the name \
             of a lock for one kind of lock and nothing else",
        )),
        (ENDLESS, _) => Err(conflict(
            "the key holds a hash that never expires, so no lock: give the lock a name that nothing else uses, such as \
             `lock:order:42`; a lock that was given no expiry by hand is ended by `LockAdmin::force_unlock`",
        )),
        (NO_LOCK, _) => Err(conflict(
            "the key holds data of the application: give the lock a name that nothing else uses, such as `lock:order:42`",
        )),
        (OTHER_LIMIT, Some(limit)) => {
            Err(other_limit(u32::try_from(limit.max(0)).unwrap_or(u32::MAX)))
        }
        _ => Err(unexpected_reply(answer)),
    }
}

/// Whether a refusal names Redisson's channel as the one that reports when to ask again.
pub(crate) fn names_redissons_channel(answer: &Value) -> bool {
    matches!(answer, Value::Array(parts) if parts.len() == 3)
}

/// Reads the answer of a releasing script: 0 if nothing was held, otherwise one more than the subscribers
/// of Redisson's channel.
pub(crate) fn released(answer: &Value) -> Result<Released, StoreError> {
    match answer {
        Value::Int(0) => Ok(HoldStatus::Gone.into()),
        Value::Int(NOT_ALONE) => Err(conflict(
            "the hold has ended, but the key has other data beside it, which was left there: give the lock a name \
             that nothing else uses, such as `lock:order:42`",
        )),
        Value::Int(heard @ 1..) => {
            let notified = usize::try_from(heard - 1).unwrap_or(usize::MAX);
            Ok(Released::new(HoldStatus::Held, notified))
        }
        _ => Err(unexpected_reply(answer)),
    }
}

/// Reads the answer of the script that renews or checks `expected` holds: how many exist, and the places of the others.
pub(crate) fn renewed(answer: Value, expected: usize) -> Result<Vec<HoldStatus>, StoreError> {
    let numbers: Vec<i64> = read(answer)?;
    let misfit = || unexpected_reply(&numbers);
    // Read as `usize`, a negative number would be a large one.
    let counts = numbers.iter().map(|number| usize::try_from(*number).ok());
    let counts: Option<Vec<_>> = counts.collect();
    let counts = counts.ok_or_else(misfit)?;
    let (renewed, gone) = counts.split_first().ok_or_else(misfit)?;
    let mut statuses = vec![HoldStatus::Held; expected];
    for place in gone {
        let status = place
            .checked_sub(1)
            .and_then(|index| statuses.get_mut(index));
        *status.ok_or_else(misfit)? = HoldStatus::Gone;
    }
    match renewed + gone.len() == expected {
        true => Ok(statuses),
        false => Err(misfit()),
    }
}

pub(crate) fn conflict(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Conflict, text)
}

/// Reads an answer of the form of `T`.
pub(crate) fn read<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(|error| StoreError::new(StoreErrorKind::Unanswered, error))
}

/// An unexpected reply: the script may have taken effect.
pub(crate) fn unexpected_reply(answer: &impl fmt::Debug) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        format!("an answer that no script gives: {answer:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_holds_that_no_script_gives_is_no_answer() {
        let answer =
            |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
        let (held, gone) = (HoldStatus::Held, HoldStatus::Gone);
        assert_eq!(renewed(answer(&[1, 2]), 2).unwrap(), [held, gone]);
        for odd in [
            &[-1][..],
            &[-1, 1, 2, 3],
            &[2, 0],
            &[1, -1],
            &[1, 3],
            &[3],
            &[],
        ] {
            let error = renewed(answer(odd), 2).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unanswered, "{odd:?}");
        }
    }
}

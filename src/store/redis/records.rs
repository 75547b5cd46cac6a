//! Records of finished work.

use super::calls::release_by;
use super::channels::Channels;
use super::names::{Field, Names};
use super::script::{self, Call};
use super::timeouts::ms;
use crate::error::StoreError;
use crate::lock::{Hold, LockKey, LockMode};
use crate::store::{Record, shared_work};

/// Releases a hold and, if there was one, keeps `record`.
pub(super) fn release(hold: &Hold, record: &Record, publish: Channels) -> Result<Call, StoreError> {
    let script = match hold.mode {
        LockMode::Reentrant => &script::EXCLUSIVE_RECORD,
        LockMode::Fair => &script::FAIR_RECORD,
        LockMode::Write => &script::WRITE_RECORD,
        LockMode::Read | LockMode::Permit(_) => return Err(shared_work()),
    };
    let call = release_by(script, hold, &[Names::of(&hold.key).record()], publish);
    Ok(call.arg((
        Field::of(hold.id, hold.mode),
        &record.value[..],
        ms(record.retention),
    )))
}

/// Reads a record.
pub(super) fn read(key: &LockKey) -> Call {
    script::RECORD.call([Names::of(key).record()])
}

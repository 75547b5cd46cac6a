//! The operations of the store as calls of scripts, with their keys and arguments.

use std::num::NonZeroU32;

use super::channels::Channels;
use super::names::{
    BUSY, CHANNEL, ENTER, Field, MARK, Name, PERMIT_CHANNEL, QUEUE, RECORD, RW_CHANNEL, TOKEN, TURN,
};
use super::script::{self, Call, ms};
use crate::lock::{Hold, LockKey, LockMode};
use crate::store::{Attempt, LATENESS, Record, Renewal};

/// Asks for a hold.
pub(crate) fn acquire(attempt: &Attempt, publish: Channels) -> Call {
    let hold = &attempt.hold;
    let (script, limit) = match hold.mode {
        LockMode::Reentrant => (&script::EXCLUSIVE_ACQUIRE, None),
        LockMode::Fair => (&script::FAIR_ACQUIRE, None),
        LockMode::Read => (&script::READ_ACQUIRE, None),
        LockMode::Write => (&script::WRITE_ACQUIRE, None),
        LockMode::Permit(limit) => (&script::PERMIT_ACQUIRE, Some(limit.get())),
    };
    let fencing = attempt.fencing.filter(|_| !shares(hold.mode));
    let (lock, busy, (held, more)) = (
        [Name::lock(&hold.key)],
        [Name::at(&hold.key, BUSY)],
        beside(hold),
    );
    let tombstone = [Name::tombstone(hold)];
    let counter = fencing.map(|_| Name::at(&hold.key, TOKEN));
    let keys = lock.iter().chain(&held).chain(&busy).chain(&more);
    let call = script.call(keys.chain(&tombstone).chain(&counter));
    let publish = named_if(publish, fencing.is_some());
    let reserve = fencing.map(|fencing| (fencing.reserve, fencing.retention.map_or(0, ms)));
    let (lease, id) = (ms(attempt.lease), Field::plain(hold.id));
    call.arg((lease, id, waits(attempt)))
        .arg((limit, publish, reserve))
}

/// Whether such holds share the lock. They get no tokens, and leave no records.
pub(crate) fn shares(mode: LockMode) -> bool {
    matches!(mode, LockMode::Read | LockMode::Permit(_))
}

/// Further keys of a hold: the permits that are held, and what else its mode has.
fn beside(hold: &Hold) -> (Option<Name<'_>>, Option<Name<'_>>) {
    match hold.mode {
        LockMode::Reentrant | LockMode::Write => (None, None),
        LockMode::Fair => (None, Some(Name::at(&hold.key, QUEUE))),
        LockMode::Read => (None, Some(Name::reader_timeout(&hold.key, hold.id))),
        LockMode::Permit(_) => (Some(Name::permits(&hold.key)), None),
    }
}

/// How a refused attempt waits: 0 not, 1 without a place, 2 in line.
fn waits(attempt: &Attempt) -> u8 {
    let is_patient = attempt.patience.is_some();
    match attempt.hold.mode {
        LockMode::Fair => 2 * u8::from(is_patient),
        LockMode::Read => is_patient.into(),
        _ if attempt.has_place() => 2,
        LockMode::Write => is_patient.into(),
        LockMode::Reentrant | LockMode::Permit(_) => 0,
    }
}

/// Releases a hold.
pub(crate) fn release(hold: &Hold, publish: Channels) -> Call {
    end(hold, None, named_if(publish, false))
}

/// Releases a hold and, if there was one, keeps `record`.
pub(crate) fn release_recording(hold: &Hold, record: &Record, publish: Channels) -> Call {
    let call = end(hold, Some(Name::at(&hold.key, RECORD)), Some(publish));
    let (field, retention) = (Field::of(hold.id, hold.mode), ms(record.retention));
    call.arg(("record", field, &record.value[..], retention))
}

/// Reads the record of a key. `is_marked`: with a write for replicas to acknowledge.
pub(crate) fn record(key: &LockKey, is_marked: bool) -> Call {
    let record = Name::at(key, RECORD);
    match is_marked {
        true => script::RECORD
            .call([record, Name::at(key, MARK)])
            .arg("marked"),
        false => Call::about("GET", record),
    }
}

/// Withdraws an attempt. A tombstone refuses a copy of it that may still arrive.
pub(crate) fn withdraw(attempt: &Attempt, unanswered: bool, publish: Channels) -> Call {
    let hold = &attempt.hold;
    let life = match unanswered {
        true => ms(attempt.lease.max(LATENESS)),
        false => 0,
    };
    let tombstone = Name::tombstone(hold);
    end(hold, Some(tombstone), Some(publish)).arg(("withdraw", life))
}

/// Ends a hold. `leaves`: the key that stays, a record or a tombstone. The publish command may be left out only if no argument
/// follows it.
fn end(hold: &Hold, leaves: Option<Name<'_>>, publish: Option<Channels>) -> Call {
    let script = match hold.mode {
        LockMode::Reentrant => &script::EXCLUSIVE_RELEASE,
        LockMode::Fair => &script::FAIR_RELEASE,
        LockMode::Read => &script::READ_RELEASE,
        LockMode::Write => &script::WRITE_RELEASE,
        LockMode::Permit(_) => &script::PERMIT_RELEASE,
    };
    let (lock, (held, more)) = ([Name::lock(&hold.key)], beside(hold));
    let next = [Name::at(&hold.key, BUSY), redissons_channel(hold)];
    let keys = lock.iter().chain(&held).chain(&next).chain(&more);
    let call = script.call(keys.chain(&leaves));
    call.arg((Field::plain(hold.id), publish))
}

/// Renews the leases of some holds; a renewal without a lease asks whether the hold exists. `is_marked`: with a write for
/// replicas to acknowledge.
pub(crate) fn renew(renewals: &[&Renewal], is_marked: bool) -> Call {
    let keys = renewals.iter().flat_map(|renewal| {
        let lock = Name::lock(&renewal.hold.key);
        [lock].into_iter().chain(renewed_by(&renewal.hold).1)
    });
    let kind = |renewal: &Renewal| renewed_by(&renewal.hold).0;
    let mark = is_marked.then(|| Name::at(&renewals[0].hold.key, MARK));
    let call = script::RENEW
        .call(keys.chain(mark))
        .arg(is_marked.then_some("marked"));
    let runs = renewals.chunk_by(|a, b| kind(a) == kind(b) && a.lease == b.lease);
    runs.fold(call, |call, run| {
        let call = call.arg((kind(run[0]), run[0].lease.map_or(0, ms), run.len()));
        let fields = run
            .iter()
            .map(|renewal| Field::of(renewal.hold.id, renewal.hold.mode));
        fields.fold(call, Call::arg)
    })
}

/// How a hold is renewed, and the second key that this needs.
fn renewed_by(hold: &Hold) -> (&'static str, Option<Name<'_>>) {
    match hold.mode {
        LockMode::Reentrant | LockMode::Fair | LockMode::Write => ("hash", None),
        LockMode::Read => ("reader", Some(Name::reader_timeout(&hold.key, hold.id))),
        LockMode::Permit(_) => ("permit", Some(Name::permits(&hold.key))),
    }
}

/// Asks who holds a key, and who waits for it.
pub(crate) fn inspect(key: &LockKey) -> Call {
    script::INSPECT.call(keys_of(key))
}

/// Ends every hold of a key.
pub(crate) fn force(key: &LockKey, publish: Channels) -> Call {
    script::FORCE.call(keys_of(key)).arg(publish)
}

/// Sets how many permits there are; `None`: attempts name it.
pub(crate) fn set_permits(key: &LockKey, limit: Option<NonZeroU32>, publish: Channels) -> Call {
    let [lock, busy, permits, queue] = keys_of(key);
    let limit = limit.map_or(0, NonZeroU32::get);
    script::PERMIT_SET
        .call([lock, permits, busy, queue])
        .arg((limit, publish))
}

/// No lock has both of the last two. So in a Cluster, where a server refuses a script of which it lacks a key in a slot that is being
/// moved, none of these scripts acts on one half of a slot.
fn keys_of(key: &LockKey) -> [Name<'_>; 4] {
    [
        Name::lock(key),
        Name::at(key, BUSY),
        Name::permits(key),
        Name::at(key, QUEUE),
    ]
}

/// The channel that reports when such an attempt may succeed.
pub(crate) fn channel(attempt: &Attempt) -> String {
    let hold = &attempt.hold;
    match hold.mode {
        LockMode::Fair => Name::at(&hold.key, CHANNEL).of(hold.id).to_string(),
        LockMode::Read if attempt.is_woken_in_turn() => Name::at(&hold.key, ENTER).to_string(),
        _ if attempt.is_woken_in_turn() => {
            format!("{}:{}", Name::at(&hold.key, TURN), hold.id.client())
        }
        _ => redissons_channel(hold).to_string(),
    }
}

/// The channel on which Redisson reports that a lock is free.
pub(crate) fn redissons_channel(hold: &Hold) -> Name<'_> {
    match hold.mode {
        LockMode::Reentrant | LockMode::Fair => Name::at(&hold.key, CHANNEL),
        LockMode::Read | LockMode::Write => Name::at(&hold.key, RW_CHANNEL),
        LockMode::Permit(_) => Name::at(&hold.key, PERMIT_CHANNEL),
    }
}

/// The command with which a script publishes. `PUBLISH` is the default, and may be left out if no argument follows it.
fn named_if(publish: Channels, is_followed: bool) -> Option<Channels> {
    (is_followed || publish == Channels::Sharded).then_some(publish)
}

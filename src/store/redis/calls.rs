//! The operations of the store as calls of scripts, with their keys and arguments.

use super::channels::Channels;
use super::names::{Field, Name, Names};
use super::script::{self, Call, Script};
use super::timeouts::ms;
use crate::error::StoreError;
use crate::lock::{Hold, LockMode};
use crate::store::{Attempt, LATENESS, Record, Renewal, WAITER_LIVENESS, shared_work};

/// Asks for a hold.
pub(super) fn acquire(attempt: &Attempt, publish: Channels) -> Call {
    let hold = &attempt.hold;
    let (names, id) = (Names::of(&hold.key), Field::plain(hold.id));
    let tombstone = names.tombstone(Field::of(attempt.id, hold.mode));
    let lease = ms(attempt.lease);
    let liveness = attempt.patience.map_or(0, |_| ms(WAITER_LIVENESS));
    let stands_in_line = attempt.stands_in_line();
    let in_line = if stands_in_line { liveness } else { 0 };
    let channels = named_if(publish, attempt.fencing.is_some());
    // The last key, and the last two arguments, of scripts that issue tokens.
    let counter = attempt.fencing.map(|_| names.token());
    let reserve = attempt.fencing.map(|fencing| {
        let retention = fencing.retention.map_or(0, ms);
        (fencing.reserve, retention)
    });
    match hold.mode {
        LockMode::Reentrant => {
            let keys = [
                names.lock(),
                tombstone,
                names.waiting_writers(),
                names.line(),
                names.outside(),
            ];
            script::EXCLUSIVE_ACQUIRE
                .call(keys.iter().chain(&counter))
                .arg((lease, id, in_line, channels, reserve))
        }
        LockMode::Fair => {
            let keys = [
                names.lock(),
                tombstone,
                names.alive(),
                names.timeouts(),
                names.queue(),
            ];
            let call = script::FAIR_ACQUIRE.call(keys.iter().chain(&counter));
            call.arg((lease, id, liveness, channels, reserve))
        }
        LockMode::Read => {
            let keys = [
                names.lock(),
                tombstone,
                names.waiting_writers(),
                names.waiting_readers(),
                names.passes(),
                names.reader_timeout(hold.id),
            ];
            script::READ_ACQUIRE.call(keys).arg((lease, id, liveness))
        }
        LockMode::Write => {
            let keys = [
                names.lock(),
                tombstone,
                names.waiting_writers(),
                names.passes(),
                names.line(),
                names.outside(),
            ];
            let in_line = u8::from(stands_in_line);
            script::WRITE_ACQUIRE
                .call(keys.iter().chain(&counter))
                .arg((lease, id, liveness, in_line, channels, reserve))
        }
        LockMode::Permit(limit) => {
            let keys = [
                names.lock(),
                names.permits(),
                names.permit_channel(),
                tombstone,
                names.set_limit(),
                names.waiting_writers(),
                names.line(),
                names.outside(),
            ];
            let call = script::PERMIT_ACQUIRE.call(keys);
            call.arg((lease, id, in_line, limit.get(), channels))
        }
    }
}

/// The scripts that release a hold, release it with a record, and withdraw an attempt.
fn ending(mode: LockMode) -> (&'static Script, Option<&'static Script>, &'static Script) {
    use script::*;
    match mode {
        LockMode::Reentrant => (
            &EXCLUSIVE_RELEASE,
            Some(&EXCLUSIVE_RECORD),
            &EXCLUSIVE_WITHDRAW,
        ),
        LockMode::Fair => (&FAIR_RELEASE, Some(&FAIR_RECORD), &FAIR_WITHDRAW),
        LockMode::Read => (&READ_RELEASE, None, &READ_WITHDRAW),
        LockMode::Write => (&WRITE_RELEASE, Some(&WRITE_RECORD), &WRITE_WITHDRAW),
        LockMode::Permit(_) => (&PERMIT_RELEASE, None, &PERMIT_WITHDRAW),
    }
}

/// Releases a hold.
pub(super) fn release(hold: &Hold, publish: Channels) -> Call {
    let (release, ..) = ending(hold.mode);
    release_by(release, hold, &[], publish)
}

/// Releases a hold and, if there was one, keeps `record`.
pub(super) fn release_recording(
    hold: &Hold,
    record: &Record,
    publish: Channels,
) -> Result<Call, StoreError> {
    let (_, recording, _) = ending(hold.mode);
    let recording = recording.ok_or_else(shared_work)?;
    let call = release_by(recording, hold, &[Names::of(&hold.key).record()], publish);
    let (field, retention) = (Field::of(hold.id, hold.mode), ms(record.retention));
    Ok(call.arg((field, &record.value[..], retention)))
}

/// Ends a hold by a script that takes `more` keys after those of [`release`].
fn release_by(script: &'static Script, hold: &Hold, more: &[Name<'_>], publish: Channels) -> Call {
    let names = Names::of(&hold.key);
    let channel = redissons_channel(hold);
    let (waiting, line, outside) = (names.waiting_writers(), names.line(), names.outside());
    let call = |keys: &[Name<'_>]| {
        let lock = [names.lock()];
        let call = script.call(lock.iter().chain(keys).chain(more));
        // The publish command may be left out only if it is the last argument. Scripts with more keys have more arguments
        // after it.
        let channels = named_if(publish, !more.is_empty());
        call.arg((Field::plain(hold.id), channels))
    };
    match hold.mode {
        LockMode::Reentrant => call(&[channel, waiting, line, outside]),
        LockMode::Fair => {
            let (timeouts, queue, alive) = (names.timeouts(), names.queue(), names.alive());
            call(&[channel, timeouts, line, queue, alive, waiting])
        }
        LockMode::Read => {
            let timeout = names.reader_timeout(hold.id);
            call(&[channel, timeout, waiting, line])
        }
        LockMode::Write => {
            let (called, passes) = (names.waiting_readers(), names.passes());
            call(&[channel, called, passes, waiting, line, outside])
        }
        LockMode::Permit(_) => call(&[names.permits(), channel, waiting, line, outside]),
    }
}

/// Withdraws an attempt, by a script that takes the keys and arguments of [`release`] and those of the tombstone.
pub(super) fn withdraw(attempt: &Attempt, unanswered: bool, publish: Channels) -> Call {
    let hold = &attempt.hold;
    let names = Names::of(&hold.key);
    let tombstone = names.tombstone(Field::of(attempt.id, hold.mode));
    let keys = [tombstone, names.waiting_readers(), names.passes()];
    let more = match hold.mode {
        LockMode::Read => &keys[..],
        _ => &keys[..1],
    };
    let (.., withdraw) = ending(hold.mode);
    release_by(withdraw, hold, more, publish).arg(match unanswered {
        true => ms(attempt.lease.max(LATENESS)),
        false => 0,
    })
}

/// Renews the leases of some holds; a renewal without a lease asks whether the hold exists. `is_marked`: with a write for
/// replicas to acknowledge.
pub(super) fn renew(renewals: &[&Renewal], is_marked: bool) -> Call {
    let keys = renewals.iter().flat_map(|renewal| {
        let lock = Names::of(&renewal.hold.key).lock();
        [lock].into_iter().chain(renewed_by(&renewal.hold).1)
    });
    let kind = |renewal: &Renewal| renewed_by(&renewal.hold).0;
    let call = match is_marked {
        true => script::RENEW_MARKED.call(keys.chain([Names::of(&renewals[0].hold.key).mark()])),
        false => script::RENEW.call(keys),
    };
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
    let names = Names::of(&hold.key);
    match hold.mode {
        LockMode::Reentrant | LockMode::Fair | LockMode::Write => ("hash", None),
        LockMode::Read => ("reader", Some(names.reader_timeout(hold.id))),
        LockMode::Permit(_) => ("permit", Some(names.permits())),
    }
}

/// The channel that reports when such an attempt may succeed.
pub(super) fn channel(attempt: &Attempt) -> String {
    let hold = &attempt.hold;
    let names = Names::of(&hold.key);
    match hold.mode {
        LockMode::Fair => names.turn_channel(hold.id).to_string(),
        LockMode::Read if attempt.is_called() => names.enter().to_string(),
        _ if attempt.is_called() => format!("{}:{}", names.turn(), hold.id.client()),
        _ => redissons_channel(hold).to_string(),
    }
}

/// The channel on which Redisson reports that a lock is free.
pub(super) fn redissons_channel(hold: &Hold) -> Name<'_> {
    let names = Names::of(&hold.key);
    match hold.mode {
        LockMode::Reentrant | LockMode::Fair => names.channel(),
        LockMode::Read | LockMode::Write => names.rw_channel(),
        LockMode::Permit(_) => names.permit_channel(),
    }
}

/// The command with which a script publishes. `PUBLISH` is the default, and may be left out if no argument follows it.
fn named_if(publish: Channels, is_followed: bool) -> Option<Channels> {
    (is_followed || publish == Channels::Sharded).then_some(publish)
}

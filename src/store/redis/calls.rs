//! The operations of the store as calls of scripts, with their keys and arguments.

use super::channels::Channels;
use super::names::{Field, Name, Names};
use super::script::{self, Call, Script};
use super::timeouts::ms;
use crate::lock::{Hold, LockMode};
use crate::store::{Attempt, LATENESS, Renewal, WAITER_LIVENESS};

/// Asks for a hold.
pub(super) fn acquire(attempt: &Attempt, publish: Channels) -> Call {
    let hold = &attempt.hold;
    let (names, id) = (Names::of(&hold.key), hold.id);
    let begin = |script: &'static Script, keys: usize, args: usize| {
        let fenced = usize::from(attempt.fencing.is_some());
        script.call(names, keys + fenced, args).arg(names.lock())
    };
    // The last key, and the last two arguments, of scripts that issue tokens.
    let counter = attempt.fencing.map(|_| names.token());
    let reserve = attempt.fencing.map(|fencing| fencing.reserve);
    let retention = attempt
        .fencing
        .map(|fencing| fencing.retention.map_or(0, ms));
    let lease = ms(attempt.lease);
    let liveness = attempt.patience.map_or(0, |_| ms(WAITER_LIVENESS));
    let in_line = match attempt.stands_in_line() {
        true => liveness,
        false => 0,
    };
    match hold.mode {
        LockMode::Reentrant => begin(&script::EXCLUSIVE_ACQUIRE, 5, 7)
            .arg(names.tombstone(field(hold)))
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(names.outside())
            .arg(counter)
            .arg(lease)
            .arg(Field::Plain(id))
            .arg(in_line)
            .arg(names.turn())
            .arg(publish)
            .arg(reserve)
            .arg(retention),
        LockMode::Fair => begin(&script::FAIR_ACQUIRE, 5, 7)
            .arg(names.queue())
            .arg(names.timeouts())
            .arg(names.alive())
            .arg(names.tombstone(field(hold)))
            .arg(counter)
            .arg(lease)
            .arg(Field::Plain(id))
            .arg(liveness)
            .arg(names.channel())
            .arg(publish)
            .arg(reserve)
            .arg(retention),
        LockMode::Read => script::READ_ACQUIRE
            .call(names, 6, 3)
            .arg(names.lock())
            .arg(names.tombstone(field(hold)))
            .arg(names.waiting_writers())
            .arg(names.waiting_readers())
            .arg(names.passes())
            .arg(names.reader_timeout(id))
            .arg(lease)
            .arg(Field::Plain(id))
            .arg(liveness),
        LockMode::Write => {
            let call = begin(&script::WRITE_ACQUIRE, 6, 8)
                .arg(names.tombstone(field(hold)))
                .arg(names.waiting_writers())
                .arg(names.passes())
                .arg(names.line())
                .arg(names.outside())
                .arg(counter)
                .arg(lease)
                .arg(Field::Plain(id))
                .arg(liveness);
            let call = match attempt.stands_in_line() {
                true => call.arg(names.turn()),
                false => call.arg(""),
            };
            call.arg(publish)
                .arg(names.readers_prefix())
                .arg(reserve)
                .arg(retention)
        }
        LockMode::Permit(limit) => script::PERMIT_ACQUIRE
            .call(names, 8, 6)
            .arg(names.lock())
            .arg(names.permits())
            .arg(names.permit_channel())
            .arg(names.tombstone(field(hold)))
            .arg(names.set_limit())
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(names.outside())
            .arg(lease)
            .arg(Field::Plain(id))
            .arg(in_line)
            .arg(names.turn())
            .arg(publish)
            .arg(limit.get()),
    }
}

/// Releases a hold.
pub(super) fn release(hold: &Hold, publish: Channels) -> Call {
    let script = match hold.mode {
        LockMode::Reentrant => &script::EXCLUSIVE_RELEASE,
        LockMode::Fair => &script::FAIR_RELEASE,
        LockMode::Read => &script::READ_RELEASE,
        LockMode::Write => &script::WRITE_RELEASE,
        LockMode::Permit(_) => &script::PERMIT_RELEASE,
    };
    release_by(script, hold, &[], publish)
}

/// Ends a hold by a script that takes `more` keys after those of [`release`].
pub(super) fn release_by(
    script: &'static Script,
    hold: &Hold,
    more: &[Name<'_>],
    publish: Channels,
) -> Call {
    let names = Names::of(&hold.key);
    let id = Field::Plain(hold.id);
    let begin = |keys: usize, args: usize| {
        // A record follows with three arguments, a tombstone with one.
        script
            .call(names, keys + more.len(), args + 3 * more.len().min(1))
            .arg(names.lock())
    };
    match hold.mode {
        LockMode::Reentrant => begin(5, 3)
            .arg(names.channel())
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(names.outside())
            .arg(more)
            .arg(id)
            .arg(publish),
        LockMode::Fair => begin(6, 4)
            .arg(names.queue())
            .arg(names.timeouts())
            .arg(names.alive())
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(more)
            .arg(id)
            .arg(publish)
            .arg(names.channel()),
        LockMode::Read => begin(5, 4)
            .arg(names.rw_channel())
            .arg(names.reader_timeout(hold.id))
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(more)
            .arg(id)
            .arg(publish)
            .arg(names.readers_prefix()),
        LockMode::Write => begin(7, 5)
            .arg(names.rw_channel())
            .arg(names.waiting_readers())
            .arg(names.passes())
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(names.outside())
            .arg(more)
            .arg(id)
            .arg(publish)
            .arg(names.readers_prefix()),
        LockMode::Permit(_) => begin(6, 3)
            .arg(names.permits())
            .arg(names.permit_channel())
            .arg(names.waiting_writers())
            .arg(names.line())
            .arg(names.outside())
            .arg(more)
            .arg(id)
            .arg(publish),
    }
    .arg(names.turn())
    .arg((hold.mode == LockMode::Write).then(|| names.enter()))
}

/// Withdraws an attempt, by a script that takes the keys and arguments of [`release`] and those of the tombstone.
pub(super) fn withdraw(attempt: &Attempt, unanswered: bool, publish: Channels) -> Call {
    let hold = &attempt.hold;
    let names = Names::of(&hold.key);
    let tombstone = names.tombstone(field(hold));
    let reader = [tombstone, names.waiting_readers(), names.passes()];
    let (script, more) = match hold.mode {
        LockMode::Reentrant => (&script::EXCLUSIVE_WITHDRAW, &reader[..1]),
        LockMode::Fair => (&script::FAIR_WITHDRAW, &reader[..1]),
        LockMode::Read => (&script::READ_WITHDRAW, &reader[..]),
        LockMode::Write => (&script::WRITE_WITHDRAW, &reader[..1]),
        LockMode::Permit(_) => (&script::PERMIT_WITHDRAW, &reader[..1]),
    };
    release_by(script, hold, more, publish).arg(match unanswered {
        true => ms(attempt.lease.max(LATENESS)),
        false => 0,
    })
}

/// Renews the leases of some holds.
pub(super) fn renew<'a>(renewals: impl Iterator<Item = &'a Renewal> + Clone) -> Call {
    let holds = renewals.clone().map(|renewal| &renewal.hold);
    renewals.fold(about(&script::RENEW, 3, holds, None), |call, renewal| {
        call.arg(field(&renewal.hold))
            .arg(ms(renewal.lease.unwrap_or_default()))
            .arg(match renewal.hold.mode {
                LockMode::Reentrant | LockMode::Fair => "exclusive",
                LockMode::Read => "read",
                LockMode::Write => "write",
                LockMode::Permit(_) => "permit",
            })
    })
}

/// Asks which of some holds exist.
pub(super) fn check<'a>(holds: impl Iterator<Item = &'a Hold> + Clone) -> Call {
    holds
        .clone()
        .fold(about(&script::CHECK, 2, holds, None), |call, hold| {
            call.arg(field(hold)).arg(check_kind(hold))
        })
}

/// The same, with a write for replicas to acknowledge.
pub(super) fn check_marked<'a>(holds: impl Iterator<Item = &'a Hold> + Clone) -> Call {
    let mark = holds.clone().next();
    let mark = mark.map(|hold| Names::of(&hold.key).mark());
    holds.clone().fold(
        about(&script::CHECK_MARKED, 2, holds, mark),
        |call, hold| call.arg(field(hold)).arg(check_kind(hold)),
    )
}

/// What tells the check of a permit from that of any other hold.
fn check_kind(hold: &Hold) -> &'static str {
    match hold.mode {
        LockMode::Permit(_) => "permit",
        LockMode::Reentrant | LockMode::Fair | LockMode::Read | LockMode::Write => "",
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

/// A call about several holds, with two keys for each, and optionally one more.
fn about<'a>(
    script: &'static Script,
    args: usize,
    holds: impl Iterator<Item = &'a Hold> + Clone,
    last: Option<Name<'_>>,
) -> Call {
    let (count, bytes) = holds.clone().fold((0, 0), |(count, bytes), hold| {
        (count + 1, bytes + 2 * hold.key.as_str().len() + 180)
    });
    let keys = 2 * count + usize::from(last.is_some());
    let call = script.call_with_capacity(keys, args * count, bytes);
    let call = holds.fold(call, |call, hold| {
        let names = Names::of(&hold.key);
        let call = call.arg(names.lock());
        match hold.mode {
            LockMode::Read => call.arg(names.reader_timeout(hold.id)),
            LockMode::Reentrant | LockMode::Fair | LockMode::Write => call.arg(names.lock()),
            LockMode::Permit(_) => call.arg(names.permits()),
        }
    });
    call.arg(last)
}

pub(super) fn field(hold: &Hold) -> Field {
    match hold.mode {
        LockMode::Reentrant | LockMode::Fair | LockMode::Read | LockMode::Permit(_) => {
            Field::Plain(hold.id)
        }
        LockMode::Write => Field::Write(hold.id),
    }
}

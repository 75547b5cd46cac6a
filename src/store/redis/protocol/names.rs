//! The names of keys and channels (PROTOCOL 1.0).

use std::fmt::{self, Display, Formatter};

use redis::{RedisWrite, ToRedisArgs};

use super::slot::hash_tag;
use crate::lock::{Hold, HoldId, LockKey, LockMode};

/// The fair queue.
pub(super) const QUEUE: &str = "redisson_lock_queue:";
/// The counter of fencing tokens.
pub(super) const TOKEN: &str = "redisson_lock_token:";
/// Ours: is there while anything about the lock is unusual. Without it, no other key of ours matters to a script.
pub(crate) const BUSY: &str = "tower_lock_busy:";
/// Ours: the record of finished work.
pub(crate) const RECORD: &str = "tower_lock_record:";
/// Ours: left by an attempt that was withdrawn.
const VOID: &str = "tower_lock_void:";
/// Ours: written for replicas to acknowledge.
pub(crate) const MARK: &str = "tower_lock_mark:";
/// Ours: the entry of a process that has announced itself.
pub(crate) const PROCESS: &str = "tower_lock_process:";

/// The prefixes of the keys of a lock, besides its own name. The scripts derive most of them.
pub(crate) const KEYS: &[&str] = &[
    QUEUE,
    "redisson_lock_timeout:",
    TOKEN,
    "tower_lock_alive:",
    BUSY,
    "tower_lock_limit:",
    "tower_lock_line:",
    "tower_lock_pass:",
    "tower_lock_readers:",
    RECORD,
    VOID,
    "tower_lock_writers:",
];

/// The channel for releases of exclusive locks. A fair waiter has its own channel, `<this>:<hold id>`.
pub(super) const CHANNEL: &str = "redisson_lock__channel:";
/// The channel for releases of read-write locks.
pub(super) const RW_CHANNEL: &str = "redisson_rwlock:";
/// The channel of messages about permits that came free.
pub(super) const PERMIT_CHANNEL: &str = "redisson_sc:";
/// Ours: the channel on which the readers that a writer lets in are woken.
pub(super) const ENTER: &str = "tower_lock_enter:";
/// Ours: the prefix of the channels on which the process that is first in line is woken, `<this>:<client uuid>`.
pub(super) const TURN: &str = "tower_lock_turn:";

/// The prefixes of the channels of a lock.
pub(crate) const CHANNELS: &[&str] = &[CHANNEL, RW_CHANNEL, PERMIT_CHANNEL, ENTER, TURN];

/// The suffix of the names of the permits that are held.
pub(crate) const PERMITS: &str = ":timeout";

/// Why a name cannot be locked in a Cluster.
const SCATTERED: &str = "in a Redis Cluster this name would scatter over several slots: use a name without braces, or one \
                         whose first `{` is followed by a tag and `}`, such as `{tag}name`";

/// One of the names that belong to a lock: `<prefix>{<lock>}:<id><suffix>`, written straight into the command. All of them share the
/// lock's hash slot, unless [`share_a_slot`] refuses the lock.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    prefix: &'static str,
    lock: &'a str,
    /// Redisson's rule: a name with a brace anywhere counts as a name with its own hash tag.
    tagged: bool,
    id: Option<HoldId>,
    suffix: &'static str,
}

impl<'a> Name<'a> {
    /// The name with this prefix.
    pub(crate) fn at(key: &'a LockKey, prefix: &'static str) -> Self {
        let lock = key.as_str();
        Self {
            prefix,
            lock,
            tagged: lock.contains('{'),
            id: None,
            suffix: "",
        }
    }

    /// The hash of holds.
    pub(crate) fn lock(key: &'a LockKey) -> Self {
        Self {
            tagged: true,
            ..Self::at(key, "")
        }
    }

    /// The permits that are held, and until when.
    pub(crate) fn permits(key: &'a LockKey) -> Self {
        Self {
            suffix: PERMITS,
            ..Self::at(key, "")
        }
    }

    /// The key that lives as long as a reader.
    pub(super) fn reader_timeout(key: &'a LockKey, id: HoldId) -> Self {
        Self {
            suffix: ":rwlock_timeout:1",
            ..Self::at(key, "").of(id)
        }
    }

    /// Ours: left by an attempt that was withdrawn.
    pub(super) fn tombstone(hold: &'a Hold) -> Self {
        Self {
            suffix: Field::of(hold.id, hold.mode).1,
            ..Self::at(&hold.key, VOID).of(hold.id)
        }
    }

    pub(crate) fn of(self, id: HoldId) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }
}

/// Checks that all names of the lock are in one slot of a Cluster. The error says what to do.
pub(crate) fn share_a_slot(key: &LockKey) -> Result<(), &'static str> {
    let name = key.as_str().as_bytes();
    let is_plain = !name.is_empty() && !name.iter().any(|byte| b"{}".contains(byte));
    match is_plain || hash_tag(name).is_some() {
        true => Ok(()),
        false => Err(SCATTERED),
    }
}

/// A pattern of Redis that matches exactly this text.
pub(crate) fn literally(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The lock whose record has this name.
pub(crate) fn recorded(name: &str) -> Option<LockKey> {
    let rest = name.strip_prefix(RECORD)?;
    Some(LockKey::new(untagged(rest).unwrap_or(rest)))
}

/// The locks whose permits have this name: two, if both a name and the same name in braces would have it.
pub(crate) fn permitted(name: &str) -> impl Iterator<Item = LockKey> {
    let rest = name.strip_suffix(PERMITS);
    let tagged = rest.filter(|rest| rest.contains('{'));
    let plain = tagged.and_then(untagged);
    [plain, tagged].into_iter().flatten().map(LockKey::new)
}

/// The lock's name without the braces that Redisson's rule adds to a name that has none.
fn untagged(name: &str) -> Option<&str> {
    let lock = name.strip_prefix('{')?.strip_suffix('}')?;
    (!lock.contains('{')).then_some(lock)
}

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix)?;
        match self.tagged {
            true => f.write_str(self.lock)?,
            false => write!(f, "{{{}}}", self.lock)?,
        }
        if let Some(id) = self.id {
            write!(f, ":{id}")?;
        }
        f.write_str(self.suffix)
    }
}

impl ToRedisArgs for Name<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

/// The field that a hold has in the lock's hash: its id and a suffix.
#[derive(Clone, Copy)]
pub(super) struct Field(HoldId, &'static str);

impl Field {
    pub(super) fn plain(id: HoldId) -> Self {
        Self(id, "")
    }

    /// Redisson distinguishes a writer from a reader by the suffix.
    pub(crate) fn of(id: HoldId, mode: LockMode) -> Self {
        match mode {
            LockMode::Write => Self(id, ":write"),
            LockMode::Reentrant | LockMode::Fair | LockMode::Read | LockMode::Permit(_) => {
                Self::plain(id)
            }
        }
    }
}

impl ToRedisArgs for Field {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let Self(id, suffix) = self;
        out.write_arg_fmt(format_args!("{id}{suffix}"));
    }
}

#[cfg(test)]
mod tests;

//! The names of keys and channels (PROTOCOL 1.0).

use std::fmt::{self, Display, Formatter};

use redis::{RedisWrite, ToRedisArgs};

use super::slot::hash_tag;
use crate::lock::{HoldId, LockKey, LockMode};

/// Why a name cannot be locked in a Cluster.
const SCATTERED: &str = "in a Redis Cluster this name would scatter over several slots: use a name without braces, or one \
                         whose first `{` is followed by a tag and `}`, such as `{tag}name`";

/// The names that belong to one lock. All of them share the lock's hash slot.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    lock: &'a str,
    /// Redisson's rule: a name with a brace anywhere counts as a name with its own hash tag.
    tagged: bool,
}

impl<'a> Names<'a> {
    /// The prefix of the names of all records.
    pub(super) const RECORDS: &'static str = "tower_lock_record:";

    /// The prefix of the tombstones of attempts.
    const VOID: &'static str = "tower_lock_void:";

    /// The prefix of the keys that a store writes for replicas to acknowledge.
    pub(super) const MARKS: &'static str = "tower_lock_mark:";

    /// The prefix of the keys of the processes that have announced themselves.
    pub(super) const PROCESSES: &'static str = "tower_lock_process:";

    /// The suffix of the names of the permits that are held.
    pub(super) const PERMITS: &'static str = ":timeout";

    pub(super) fn of(key: &'a LockKey) -> Self {
        let lock = key.as_str();
        Self {
            lock,
            tagged: lock.contains('{'),
        }
    }

    /// Checks that all names of the lock are in one slot of a Cluster. The error says what to do.
    pub(super) fn share_a_slot(self) -> Result<(), &'static str> {
        let name = self.lock.as_bytes();
        let is_plain = !name.is_empty() && !name.iter().any(|byte| b"{}".contains(byte));
        match is_plain || hash_tag(name).is_some() {
            true => Ok(()),
            false => Err(SCATTERED),
        }
    }

    /// The hash of holds.
    pub(super) fn lock(self) -> Name<'a> {
        Name {
            tagged: true,
            ..self.name("")
        }
    }

    /// The channel of a fair waiter, for the message that it is first in the queue.
    pub(super) fn turn_channel(self, id: HoldId) -> Name<'a> {
        self.channel().of(id)
    }

    /// The permits that are held, and until when.
    pub(super) fn permits(self) -> Name<'a> {
        Name {
            suffix: Self::PERMITS,
            ..self.name("")
        }
    }

    /// The locks whose permits have this name: two, if both a name and the same name in braces would have it.
    pub(super) fn permitted(name: &str) -> impl Iterator<Item = LockKey> {
        let rest = name.strip_suffix(Self::PERMITS);
        let tagged = rest.filter(|rest| rest.contains('{'));
        let plain = tagged.and_then(untagged);
        [plain, tagged].into_iter().flatten().map(LockKey::new)
    }

    /// The key that lives as long as a reader.
    pub(super) fn reader_timeout(self, id: HoldId) -> Name<'a> {
        Name {
            suffix: ":rwlock_timeout:1",
            ..self.name("").of(id)
        }
    }

    /// Ours: left by an attempt that was withdrawn.
    pub(super) fn tombstone(self, id: HoldId, mode: LockMode) -> Name<'a> {
        Name {
            suffix: if mode == LockMode::Write {
                ":write"
            } else {
                ""
            },
            ..self.name(Self::VOID).of(id)
        }
    }

    /// The lock whose record has this name.
    pub(super) fn recorded(name: &str) -> Option<LockKey> {
        let rest = name.strip_prefix(Self::RECORDS)?;
        Some(LockKey::new(untagged(rest).unwrap_or(rest)))
    }

    /// Ours: written for replicas to acknowledge.
    pub(super) fn mark(self) -> Name<'a> {
        self.name(Self::MARKS)
    }

    fn name(self, prefix: &'static str) -> Name<'a> {
        Name {
            prefix,
            lock: self.lock,
            tagged: self.tagged,
            id: None,
            suffix: "",
        }
    }
}

/// Makes a list of prefixes, and for each of them the method that names what has it.
macro_rules! names {
    ($(#[$about:meta])* $list:ident: $($(#[$doc:meta])* $name:ident = $prefix:expr;)*) => {
        impl<'a> Names<'a> {
            $(#[$about])*
            pub(super) const $list: &'static [&'static str] = &[$($prefix),*];

            $($(#[$doc])*
            pub(super) fn $name(self) -> Name<'a> {
                self.name($prefix)
            })*
        }
    };
}

impl<'a> Names<'a> {
    /// The prefixes of the keys of a lock, besides its own name. The scripts derive most of them.
    pub(super) const KEYS: &'static [&'static str] = &[
        Self::QUEUE,
        "redisson_lock_timeout:",
        Self::TOKEN,
        "tower_lock_alive:",
        Self::BUSY,
        "tower_lock_limit:",
        "tower_lock_line:",
        "tower_lock_pass:",
        "tower_lock_readers:",
        Self::RECORDS,
        Self::VOID,
        "tower_lock_writers:",
    ];

    const QUEUE: &'static str = "redisson_lock_queue:";
    const TOKEN: &'static str = "redisson_lock_token:";
    const BUSY: &'static str = "tower_lock_busy:";

    /// The fair queue.
    pub(super) fn queue(self) -> Name<'a> {
        self.name(Self::QUEUE)
    }

    /// The counter of fencing tokens.
    pub(super) fn token(self) -> Name<'a> {
        self.name(Self::TOKEN)
    }

    /// Ours: is there while anything about the lock is unusual. Without it, no other key of ours matters to a script.
    pub(super) fn busy(self) -> Name<'a> {
        self.name(Self::BUSY)
    }

    /// Ours: the record of finished work.
    pub(super) fn record(self) -> Name<'a> {
        self.name(Self::RECORDS)
    }
}

names! {
    /// The prefixes of the channels of a lock.
    CHANNELS:
    /// The channel for releases of exclusive locks. A fair waiter has its own channel, `<this>:<hold id>`.
    channel = "redisson_lock__channel:";
    /// The channel for releases of read-write locks.
    rw_channel = "redisson_rwlock:";
    /// The channel of messages about permits that came free.
    permit_channel = "redisson_sc:";
    /// Ours: the channel on which the readers that a writer lets in are woken.
    enter = "tower_lock_enter:";
    /// Ours: the prefix of the channels on which the process that is first in line is woken, `<this>:<client uuid>`.
    turn = "tower_lock_turn:";
}

/// The lock's name without the braces that Redisson's rule adds to a name that has none.
fn untagged(name: &str) -> Option<&str> {
    let lock = name.strip_prefix('{')?.strip_suffix('}')?;
    (!lock.contains('{')).then_some(lock)
}

/// `<prefix>{<lock>}:<id><suffix>`, written straight into the command.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    prefix: &'static str,
    lock: &'a str,
    tagged: bool,
    id: Option<HoldId>,
    suffix: &'static str,
}

impl Name<'_> {
    fn of(self, id: HoldId) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }

    /// At least its length.
    pub(super) fn longest(&self) -> usize {
        self.prefix.len() + self.lock.len() + HoldId::LONGEST + self.suffix.len() + 3
    }

    /// Its parts, in order.
    #[inline]
    fn each_part(&self, mut put: impl FnMut(&[u8])) {
        put(self.prefix.as_bytes());
        match self.tagged {
            true => put(self.lock.as_bytes()),
            false => {
                put(b"{");
                put(self.lock.as_bytes());
                put(b"}");
            }
        }
        if let Some(id) = self.id {
            put(b":");
            put(id.encode(&mut [0; HoldId::LONGEST]));
        }
        put(self.suffix.as_bytes());
    }
}

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut written = Ok(());
        self.each_part(|part| {
            let part = std::str::from_utf8(part).expect("its parts are text");
            written = written.and_then(|()| f.write_str(part));
        });
        written
    }
}

impl ToRedisArgs for Name<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        if self.longest() > Word::ROOM {
            return out.write_arg_fmt(self);
        }
        let mut word = Word::new();
        self.each_part(|part| word.push(part));
        out.write_arg(word.bytes());
    }
}

/// The field that a hold has in the lock's hash: its id and a suffix.
#[derive(Clone, Copy)]
pub(super) struct Field(HoldId, &'static str);

impl Field {
    pub(super) fn plain(id: HoldId) -> Self {
        Self(id, "")
    }

    /// A writer reads under the id of its write, so the suffix distinguishes the two.
    pub(super) fn of(id: HoldId, mode: LockMode) -> Self {
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
        let mut word = Word::new();
        word.push(id.encode(&mut [0; HoldId::LONGEST]));
        word.push(suffix.as_bytes());
        out.write_arg(word.bytes());
    }
}

/// A short argument that consists of parts. One copy of the whole costs less than a writer for each part.
struct Word {
    buffer: [u8; Self::ROOM],
    length: usize,
}

impl Word {
    /// With more, a call of a function would fill it with zeros.
    const ROOM: usize = 192;

    fn new() -> Self {
        let buffer = [0; Self::ROOM];
        Self { buffer, length: 0 }
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        self.buffer[self.length..end].copy_from_slice(part);
        self.length = end;
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

#[cfg(test)]
mod tests;

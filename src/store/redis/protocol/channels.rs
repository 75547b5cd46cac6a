//! The kinds of channels on which messages are published.

use redis::{RedisWrite, ToRedisArgs};

use crate::sync::Mutex;

/// The kind of channel (PROTOCOL 1.9). A message of one kind does not reach subscribers of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// `PUBLISH`: every server of a Cluster forwards it to every other.
    Plain,
    /// `SPUBLISH`: only the servers of the channel's slot get it. Redis 7 and newer.
    Sharded,
}

/// The name of the command with which the scripts publish.
impl ToRedisArgs for Channels {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(match self {
            Self::Plain => b"PUBLISH",
            Self::Sharded => b"SPUBLISH",
        });
    }
}

impl Channels {
    /// The command that subscribes to a channel, or ends that.
    pub(crate) fn subscription(self, is_wanted: bool) -> &'static str {
        match (self, is_wanted) {
            (Self::Plain, true) => "SUBSCRIBE",
            (Self::Plain, false) => "UNSUBSCRIBE",
            (Self::Sharded, true) => "SSUBSCRIBE",
            (Self::Sharded, false) => "SUNSUBSCRIBE",
        }
    }
}

/// The kind of channels of a store. A Cluster is asked for it when it is first needed, and again after a reconnect and when it has a new
/// master: its servers may have been upgraded.
///
/// The mutex protects what is known. Between calls, a kind that is in doubt is still used.
#[derive(Debug)]
pub(crate) struct ChannelKind {
    /// The program has set it, or there is no choice.
    is_fixed: bool,
    /// The kind, and whether it is in doubt.
    known: Mutex<(Option<Channels>, bool)>,
}

impl ChannelKind {
    /// `None`: the servers are asked.
    pub(crate) fn new(fixed: Option<Channels>) -> Self {
        Self {
            is_fixed: fixed.is_some(),
            known: Mutex::new((fixed, false)),
        }
    }

    /// The kind, and whether the caller should ask for it again.
    pub(crate) fn known(&self) -> (Option<Channels>, bool) {
        let mut known = self.known.lock();
        (known.0, std::mem::take(&mut known.1))
    }

    /// The kind that was known last.
    pub(crate) fn last(&self) -> Option<Channels> {
        self.known.lock().0
    }

    /// A connection, or a server, was replaced.
    pub(crate) fn doubt(&self) {
        self.known.lock().1 = !self.is_fixed;
    }

    /// Whether the kind is another one than before.
    pub(crate) fn set(&self, kind: Channels) -> bool {
        let before = self.known.lock().0.replace(kind);
        before.is_some_and(|before| before != kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_asked_for_again_after_a_reconnect_unless_it_is_set() {
        let kind = ChannelKind::new(None);
        assert_eq!(kind.known(), (None, false));
        assert!(!kind.set(Channels::Plain));
        assert_eq!(kind.known(), (Some(Channels::Plain), false));
        kind.doubt();
        assert_eq!(kind.known(), (Some(Channels::Plain), true));
        assert_eq!(kind.known(), (Some(Channels::Plain), false), "one asks");
        assert!(kind.set(Channels::Sharded), "the servers were upgraded");

        let fixed = ChannelKind::new(Some(Channels::Plain));
        fixed.doubt();
        assert_eq!(fixed.known(), (Some(Channels::Plain), false));
    }
}

//! The kinds of channels on which messages are published.

use redis::{RedisWrite, ToRedisArgs};

/// The kind of channel (PROTOCOL 1.9). A message of one kind does not reach subscribers of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channels {
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
    pub(super) fn subscription(self, is_wanted: bool) -> &'static str {
        match (self, is_wanted) {
            (Self::Plain, true) => "SUBSCRIBE",
            (Self::Plain, false) => "UNSUBSCRIBE",
            (Self::Sharded, true) => "SSUBSCRIBE",
            (Self::Sharded, false) => "SUNSUBSCRIBE",
        }
    }
}

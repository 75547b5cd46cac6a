//! The kinds of channels on which messages are published.

use std::collections::HashMap;

use redis::{FromRedisValue, RedisWrite, ToRedisArgs, Value};

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
    /// Those of a node of a Cluster, by its answer to `HELLO`. Without its version, they are plain.
    pub(crate) fn of(hello: &Value) -> Self {
        let version = || {
            let fields = HashMap::<String, Value>::from_redis_value_ref(hello).ok()?;
            let version = String::from_redis_value_ref(fields.get("version")?).ok()?;
            version.split('.').next()?.parse::<u64>().ok()
        };
        match version() {
            Some(7..) => Self::Sharded,
            _ => Self::Plain,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_sharded_channels_from_version_7_on() {
        let hello = |version: &str| {
            let text = |text: &str| Value::BulkString(text.into());
            Value::Array(["server", "redis", "version", version].map(text).into())
        };
        for (version, kind) in [
            ("6.2.14", Channels::Plain),
            ("7.0.0", Channels::Sharded),
            ("10.1", Channels::Sharded),
            ("unknown", Channels::Plain),
        ] {
            assert_eq!(Channels::of(&hello(version)), kind, "{version}");
        }
        assert_eq!(Channels::of(&Value::Nil), Channels::Plain, "a proxy");
    }
}

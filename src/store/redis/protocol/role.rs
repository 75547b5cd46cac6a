//! The role of a server.

use std::collections::HashMap;

use redis::{FromRedisValue, Value};

use super::failure::refused;
use crate::error::StoreError;

/// The role of a server, from its answer to `HELLO`, which every user may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Accepts writes, and has all keys.
    Master,
    /// Follows another server, and refuses writes.
    Replica,
    /// Has some of the slots of a Cluster, or none.
    ClusterNode,
    /// Watches servers, and has no keys.
    Sentinel,
}

impl Role {
    /// Reads the answer to `HELLO`; `None` if it names no role.
    pub(crate) fn read(answer: &Value) -> Option<Self> {
        let fields = HashMap::<String, Value>::from_redis_value_ref(answer).ok()?;
        let field = |name| String::from_redis_value_ref(fields.get(name)?).ok();
        match (field("mode")?.as_str(), field("role").as_deref()) {
            ("sentinel", _) => Some(Self::Sentinel),
            ("cluster", _) => Some(Self::ClusterNode),
            (_, Some("master" | "primary")) => Some(Self::Master),
            (_, Some("replica" | "slave")) => Some(Self::Replica),
            _ => None,
        }
    }

    /// Checks that the server has all locks. The error says what to do if not.
    pub(crate) fn has_every_key(self) -> Result<(), StoreError> {
        let text = match self {
            Self::Master => return Ok(()),
            Self::Replica => {
                "the server is a replica, which takes no locks: connect to its master, or use `RedisStore::sentinel`"
            }
            Self::ClusterNode => {
                "the server belongs to a Redis Cluster, and has a part of the keys: use `RedisStore::cluster`"
            }
            Self::Sentinel => {
                "the server is a sentinel, and has no keys: use `RedisStore::sentinel`"
            }
        };
        Err(refused(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(fields: &[(&str, &str)]) -> [Value; 2] {
        let text = |text: &str| Value::BulkString(text.into());
        let pairs = fields.iter().map(|(name, value)| (text(name), text(value)));
        let flat = pairs.clone().flat_map(|(name, value)| [name, value]);
        [Value::Array(flat.collect()), Value::Map(pairs.collect())]
    }

    #[test]
    fn a_server_is_known_by_its_answer_in_both_protocols() {
        for (mode, role, expected) in [
            ("standalone", "master", Role::Master),
            ("standalone", "replica", Role::Replica),
            ("cluster", "master", Role::ClusterNode),
            ("cluster", "replica", Role::ClusterNode),
            ("sentinel", "", Role::Sentinel),
        ] {
            for answer in hello(&[("server", "redis"), ("mode", mode), ("role", role)]) {
                assert_eq!(Role::read(&answer), Some(expected));
            }
        }
        for odd in [Value::Nil, Value::Okay, Value::Array(vec![Value::Int(1)])] {
            assert_eq!(Role::read(&odd), None);
        }
    }
}

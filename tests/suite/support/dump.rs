//! The content of a whole Redis database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, Value};

/// Every key with its content, at one instant.
pub(crate) type Dump = BTreeMap<String, Entry>;

/// The content of one key.
///
/// Bytes that are not UTF-8 are escaped, so that different contents look different.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) stored: Stored,
    /// Time to live (PTTL); `None` for a key without one.
    pub(crate) ttl: Option<Duration>,
}

/// A value with its Redis type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stored {
    String(String),
    Hash(BTreeMap<String, String>),
    List(Vec<String>),
    Set(BTreeSet<String>),
    /// In the order of the scores.
    SortedSet(Vec<(String, f64)>),
    /// A type that no lock uses; only its name.
    Other(String),
}

/// Reads everything in one step, so that nothing expires or changes in between.
pub(super) async fn read(connection: &mut MultiplexedConnection) -> RedisResult<Dump> {
    let keys: Vec<Value> = redis::cmd("EVAL")
        .arg(include_str!("dump.lua"))
        .arg(0)
        .query_async(connection)
        .await?;
    keys.into_iter().map(entry).collect()
}

fn entry(value: Value) -> RedisResult<(String, Entry)> {
    let (key, kind, pttl, content): (Vec<u8>, String, i64, Value) =
        FromRedisValue::from_redis_value(value)?;
    let stored = match kind.as_str() {
        "string" => Stored::String(text(FromRedisValue::from_redis_value(content)?)),
        "hash" => Stored::Hash(pairs(content)?.into_iter().collect()),
        "list" => Stored::List(texts(content)?),
        "set" => Stored::Set(texts(content)?.into_iter().collect()),
        "zset" => Stored::SortedSet(
            pairs(content)?
                .into_iter()
                .map(|(member, score)| (member, score.parse().expect("a score is a number")))
                .collect(),
        ),
        _ => Stored::Other(kind),
    };
    let ttl = u64::try_from(pttl).ok().map(Duration::from_millis);
    Ok((text(key), Entry { stored, ttl }))
}

fn pairs(content: Value) -> RedisResult<Vec<(String, String)>> {
    let flat = texts(content)?;
    let (pairs, _) = flat.as_chunks();
    Ok(pairs
        .iter()
        .cloned()
        .map(|[name, value]| (name, value))
        .collect())
}

fn texts(content: Value) -> RedisResult<Vec<String>> {
    let items: Vec<Vec<u8>> = FromRedisValue::from_redis_value(content)?;
    Ok(items.into_iter().map(text).collect())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| error.as_bytes().escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use redis::AsyncTypedCommands;

    use crate::support::{Dump, Entry, RedisServer, Stored};

    #[tokio::test]
    async fn every_type_is_shown_with_its_content_and_ttl() {
        let server = RedisServer::start().await;
        assert_eq!(server.dump().await, Dump::new());

        let mut redis = server.connection().await;
        let _: () = redis::pipe()
            .hset("hash", "owner:1", "1")
            .pexpire("hash", 30_000)
            .set("text", "7")
            .set("bytes", b"\xff\x00")
            .rpush("list", &["b", "a"])
            .sadd("set", &["y", "x"])
            .zadd_multiple("zset", &[(2.5, "late"), (1.0, "early")])
            .cmd("XADD")
            .arg(&["stream", "*", "field", "value"])
            .query_async(&mut redis)
            .await
            .unwrap();

        let mut dump = server.dump().await;
        let ttl = dump["hash"].ttl.unwrap();
        assert!(Duration::from_secs(20) < ttl && ttl <= Duration::from_secs(30));
        dump.get_mut("hash").unwrap().ttl = None;
        let lasting = |stored| Entry { stored, ttl: None };
        let expected = [
            (
                "hash",
                Stored::Hash(BTreeMap::from([("owner:1".into(), "1".into())])),
            ),
            ("text", Stored::String("7".into())),
            ("bytes", Stored::String(r"\xff\x00".into())),
            ("list", Stored::List(vec!["b".into(), "a".into()])),
            ("set", Stored::Set(BTreeSet::from(["x".into(), "y".into()]))),
            (
                "zset",
                Stored::SortedSet(vec![("early".into(), 1.0), ("late".into(), 2.5)]),
            ),
            ("stream", Stored::Other("stream".into())),
        ];
        assert_eq!(
            dump,
            expected
                .map(|(key, stored)| (key.into(), lasting(stored)))
                .into()
        );

        redis.flushall().await.unwrap();
        assert_eq!(server.dump().await, Dump::new());
    }
}

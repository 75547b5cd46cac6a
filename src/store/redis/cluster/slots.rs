//! Addresses of servers, and the answer to `CLUSTER SLOTS`.

use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, Value};

use crate::store::redis::endpoint::is_encrypted;
use crate::store::redis::slot::SLOTS;

/// Host and port of a server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Reads `host:port` in a redirection by the server at `teller`. A server that does not know its own host name
    /// leaves the host out.
    pub(super) fn read(text: &str, teller: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self {
            host: known_host(host, teller),
            port: port.parse().ok()?,
        })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The addresses of the seeds, or what is wrong with them.
pub(in super::super) fn addresses(seeds: &[ConnectionInfo]) -> Result<Vec<Address>, &'static str> {
    if seeds.iter().any(is_encrypted) && !seeds.iter().all(is_encrypted) {
        return Err("the servers of a Cluster are all asked by TLS, or none of them");
    }
    let addresses = seeds.iter().map(|seed| {
        if seed.redis_settings().db() != 0 {
            return Err("a Cluster has one database: leave its number out of the address");
        }
        match seed.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Ok(Address::new(host, *port))
            }
            _ => Err("the servers of a Cluster are found by host and port"),
        }
    });
    addresses.collect()
}

fn known_host(host: &str, teller: &Address) -> Arc<str> {
    match host {
        "" | "?" => teller.host.clone(),
        host => host.into(),
    }
}

/// Consecutive slots, and the server that has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Address,
    pub(super) replicas: Vec<Address>,
}

/// Which server has which slots, by the answer of one server.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) ranges: Vec<Range>,
    /// Rises with every failover and every slot that moves.
    pub(super) epoch: u64,
}

/// Reads the answer of the server at `teller` to `CLUSTER SLOTS`, in the order of the slots.
pub(super) fn ranges(answer: &Value, teller: &Address) -> Option<Vec<Range>> {
    let ranges = answer.as_sequence()?.iter().map(|range| {
        let [Value::Int(first), Value::Int(last), servers @ ..] = range.as_sequence()? else {
            return None;
        };
        let mut servers = servers.iter().map(|server| address(server, teller));
        Some(Range {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok().filter(|last| *last < SLOTS)?,
            master: servers.next()??,
            replicas: servers.collect::<Option<_>>()?,
        })
    });
    let mut ranges = ranges.collect::<Option<Vec<_>>>()?;
    ranges.sort_unstable_by_key(|range| range.first);
    Some(ranges)
}

fn address(server: &Value, teller: &Address) -> Option<Address> {
    let [host, Value::Int(port), ..] = server.as_sequence()? else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    Some(Address {
        host: known_host(host, teller),
        port: u16::try_from(*port).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_know_its_own_name_is_the_one_that_was_asked() {
        let teller = Address::new("redis-1", 7000);
        let text = |text: &str| Value::BulkString(text.into());
        let server = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, servers: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], servers].concat())
        };
        let answer = Value::Array(vec![
            range(
                100,
                16383,
                vec![server(text("10.0.0.2"), 7001), server(text("?"), 7002)],
            ),
            range(0, 99, vec![server(Value::Nil, 7000)]),
        ]);
        let found = ranges(&answer, &teller).unwrap();
        assert_eq!(found[0].master, teller);
        assert_eq!(found[1].master, Address::new("10.0.0.2", 7001));
        assert_eq!(found[1].replicas, [Address::new("redis-1", 7002)]);

        assert_eq!(Address::read(":7000", &teller), Some(teller.clone()));
        let other = Address::new("fe80::1", 7003);
        assert_eq!(Address::read("fe80::1:7003", &teller), Some(other));
        for odd in [Value::Okay, Value::Array(vec![range(0, 16384, vec![])])] {
            assert_eq!(ranges(&odd, &teller), None);
        }
    }
}

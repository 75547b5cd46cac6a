//! Addresses of servers, as the program, sentinels and the servers of a Cluster name them.

use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, Value};

/// Host and port of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Reads `host:port` in a redirection by the server at `teller`.
    pub(crate) fn read(text: &str, teller: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::beside(teller, host, port.parse().ok()?))
    }

    /// Reads a server in the answer to `CLUSTER SLOTS` of the one at `teller`.
    pub(crate) fn told(server: &Value, teller: &Self) -> Option<Self> {
        let [host, Value::Int(port), ..] = server.as_sequence()? else {
            return None;
        };
        let host = Option::<String>::from_redis_value_ref(host).ok()?;
        let port = u16::try_from(*port).ok()?;
        Some(Self::beside(teller, &host.unwrap_or_default(), port))
    }

    /// A server that does not know its own host name leaves the host out.
    fn beside(teller: &Self, host: &str, port: u16) -> Self {
        match host {
            "" | "?" => Self {
                host: teller.host.clone(),
                port,
            },
            host => Self::new(host, port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The addresses of the seeds of a Cluster, or what is wrong with them.
pub(crate) fn addresses(seeds: &[ConnectionInfo]) -> Result<Vec<Address>, &'static str> {
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

/// Whether connections to the address use TLS.
pub(crate) fn is_encrypted(address: &ConnectionInfo) -> bool {
    matches!(address.addr(), ConnectionAddr::TcpTls { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_may_leave_out_the_host() {
        let teller = Address::new("redis-1", 7000);
        assert_eq!(Address::read(":7000", &teller), Some(teller.clone()));
        let other = Address::new("fe80::1", 7003);
        assert_eq!(Address::read("fe80::1:7003", &teller), Some(other));
        assert_eq!(Address::read("redis-1", &teller), None);
    }
}

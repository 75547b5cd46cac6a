//! What a server says of itself.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use crate::store::redis::link::address::Address;

/// The answers to `INFO` and `CONFIG GET`, by name, as far as the user may ask, and this process's time when they came.
pub(super) struct Info(HashMap<String, String>, SystemTime);

impl Info {
    /// Reads the answer to `INFO`; empty for a user who may not ask.
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(fields.collect(), SystemTime::now())
    }

    /// Adds settings. Their names have hyphens, unlike the fields of `INFO`.
    pub(super) fn extend(&mut self, settings: impl IntoIterator<Item = (String, String)>) {
        self.0.extend(settings);
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.field(name) == Some(value)
    }

    /// The product and its version. Valkey also names the version of Redis that it is compatible with.
    pub(super) fn server(&self) -> (&'static str, &str) {
        match self.field("valkey_version") {
            Some(version) => ("Valkey", version),
            None => ("Redis", self.field("redis_version").unwrap_or("?")),
        }
    }

    /// Whether the server's version is at least `oldest`. True if the server does not name its version.
    pub(super) fn is_at_least(&self, oldest: [u64; 2]) -> bool {
        let version = self.field("redis_version").unwrap_or_default();
        let mut parts = version.split('.').map_while(|part| part.parse().ok());
        match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => [major, minor] >= oldest,
            _ => true,
        }
    }

    /// How many seconds the server's clock is ahead of this process's; `None` if the server does not name its time. The time that
    /// the answer took counts as behind.
    pub(super) fn clock_offset(&self) -> Option<f64> {
        let micros = self.number("server_time_usec")?;
        let here = self.1.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(Duration::from_micros(micros).as_secs_f64() - here.as_secs_f64())
    }

    /// The address of each replica, and its state: `online` when it has all data.
    pub(super) fn replicas(&self) -> Vec<(Address, String)> {
        let lines = (0..).map_while(|n| self.field(&format!("slave{n}")));
        let replica = |line: &str| {
            let parts = line.split(',').filter_map(|part| part.split_once('='));
            let parts: HashMap<_, _> = parts.collect();
            let part = |name| parts.get(name).copied().unwrap_or("?");
            let port = part("port").parse().unwrap_or_default();
            (Address::new(part("ip"), port), part("state").to_owned())
        };
        lines.map(replica).collect()
    }

    /// How many replicas have all data.
    pub(super) fn followers(&self) -> usize {
        let replicas = self.replicas().into_iter();
        replicas.filter(|(_, state)| state == "online").count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, expected) in [
            ("6.2.14", true),
            ("6.0.20", false),
            ("5.9.9", false),
            ("7.0.15", true),
            ("10.0.0", true),
            ("255.255.255", true),
            ("", true),
        ] {
            let info = Info::parse(&format!("redis_version:{version}\r\n"));
            assert_eq!(info.is_at_least([6, 2]), expected, "{version}");
        }
    }

    #[test]
    fn fields_may_contain_colons_and_replicas_are_listed() {
        let info = Info::parse(
            "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
             slave0:ip=127.0.0.1,port=7001,state=online,offset=1,lag=0\r\n\
             slave1:ip=::1,port=7002,state=wait_bgsave,offset=0,lag=0\r\n\
             executable:/a:b\r\nredis_version:7.2.4\r\nvalkey_version:8.1.8\r\n",
        );
        assert_eq!(info.field("executable"), Some("/a:b"));
        assert_eq!(info.server(), ("Valkey", "8.1.8"));
        let replicas = info.replicas();
        assert_eq!(replicas.len(), 2);
        assert_eq!(replicas[1].0, Address::new("::1", 7002));
        assert_eq!(replicas[1].1, "wait_bgsave");
    }
}

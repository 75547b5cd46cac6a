//! The process that answers, and its peers.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};

use super::millis;
use crate::client::LockClient;

/// This process, and the links to others.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    client: String,
    peers: Vec<Peer>,
    began: Instant,
}

/// The page of another process.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Peer {
    name: String,
    address: String,
}

impl Process {
    pub(super) fn new(name: Option<String>, peers: Vec<Peer>, locks: &LockClient) -> Self {
        Self {
            name: name.unwrap_or_else(name_of_this_process),
            client: locks.id().to_string(),
            peers,
            began: Instant::now(),
        }
    }

    /// `api/process`.
    pub(super) fn json(&self, may_break: bool) -> Value {
        json!({
            "name": self.name,
            "client": self.client,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "noted_ms": millis::of(self.began.elapsed()),
            "may_break": may_break,
            "peers": self.peers,
        })
    }
}

impl Peer {
    pub(super) fn new(name: String, address: String) -> Self {
        let is_link = ["https://", "http://", "/"];
        let is_link = is_link.iter().any(|start| address.starts_with(start));
        assert!(
            is_link,
            "the address of a peer begins with `https://`, `http://` or `/`: {address:?}"
        );
        Self { name, address }
    }
}

fn name_of_this_process() -> String {
    let host = hostname::get().unwrap_or_default();
    let pid = std::process::id();
    match &*host.to_string_lossy() {
        "" => format!("process {pid}"),
        host => format!("{host}, process {pid}"),
    }
}

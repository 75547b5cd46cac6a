//! The process that answers, and its peers.

use serde::Serialize;
use serde_json::{Value, json};

use crate::Console;

/// The page of another process.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Peer {
    name: String,
    address: String,
}

/// `api/process`, but for the time since the console exists.
pub(crate) fn json(console: &Console) -> Value {
    let name = console.process.clone();
    json!({
        "name": name.unwrap_or_else(name_of_this_process),
        "client": console.locks.id().to_string(),
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "may_break": console.may_break,
        "peers": console.peers,
    })
}

impl Peer {
    pub(crate) fn new(name: String, address: String) -> Self {
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

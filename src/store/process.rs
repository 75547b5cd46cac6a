//! Processes that have announced themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest label, name of a host and route, in characters.
const LONGEST: usize = 100;

/// The largest number of [`ProcessInfo::routes`] of this crate's entries.
pub(crate) const MAX_ROUTES: usize = 64;

/// The process of a client that announces itself: see [`LockClientBuilder::announce`].
///
/// [`LockClientBuilder::announce`]: crate::client::LockClientBuilder::announce
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// The name of its host; that of a container is the name of its pod, or the container's id.
    pub host: String,
    /// Its id on the host. In a container it is often 1.
    pub pid: u32,
    /// What it calls itself, such as the name of the service.
    pub label: String,
    /// The routes of the requests that held locks when the entry was written, by the number of the hold: of the 64 oldest holds.
    /// A grant writes nothing, so a hold that is younger than the entry is not here. [`LockAdmin`](crate::LockAdmin) puts them
    /// into [`Holder::route`](crate::store::Holder::route), and shows none here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<u64, String>,
}

impl ProcessInfo {
    /// A process. A label and a name of more than a hundred characters are cut.
    pub fn new(host: impl Into<String>, pid: u32, label: impl Into<String>) -> Self {
        Self {
            host: cut(host.into()),
            pid,
            label: cut(label.into()),
            routes: BTreeMap::new(),
        }
    }

    pub(crate) fn with_routes(&self, routes: BTreeMap<u64, &'static str>) -> Self {
        let routes = routes.into_iter();
        Self {
            routes: routes
                .map(|(n, route)| (n, cut(route.to_owned())))
                .collect(),
            ..self.clone()
        }
    }

    pub(crate) fn without_routes(&self) -> Self {
        self.with_routes(BTreeMap::new())
    }

    /// This process.
    pub(crate) fn here(label: impl Into<String>) -> Self {
        let host = hostname::get().unwrap_or_default();
        Self::new(host.to_string_lossy(), std::process::id(), label)
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_bounded_size() {
        let info = ProcessInfo::new("h", 7, "é".repeat(1000));
        assert_eq!(info.label, "é".repeat(LONGEST));
        assert_eq!(info.host, "h");
    }

    #[test]
    fn this_process_has_a_host_and_a_pid() {
        let here = ProcessInfo::here("orders-api");
        assert!(!here.host.is_empty());
        assert_eq!((here.pid, &*here.label), (std::process::id(), "orders-api"));
    }
}

//! Processes that have announced themselves.

use serde::{Deserialize, Serialize};

/// The longest label, and the longest name of a host, in characters.
const LONGEST: usize = 100;

/// The process of a client that announces itself: see [`LockClientBuilder::announce`].
///
/// The route of a hold is not part of it: it changes with each grant, and would cost a write for each. The console of the
/// process shows it.
///
/// [`LockClientBuilder::announce`]: crate::LockClientBuilder::announce
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// The name of its host; that of a container is the name of its pod, or the container's id.
    pub host: String,
    /// Its id on the host. In a container it is often 1.
    pub pid: u32,
    /// What it calls itself, such as the name of the service.
    pub label: String,
}

impl ProcessInfo {
    /// A process. A label and a name of more than a hundred characters are cut.
    pub fn new(host: impl Into<String>, pid: u32, label: impl Into<String>) -> Self {
        Self {
            host: cut(host.into()),
            pid,
            label: cut(label.into()),
        }
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

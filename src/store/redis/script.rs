//! The Lua scripts, and how they are called.

use std::sync::OnceLock;

use redis::{Arg, Cmd, ToRedisArgs};

use super::names::Names;

/// A script with constant text. The store sends the digest, and the text only if the server does not know the digest.
pub(super) struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

/// Joins the shared steps of a script, and the script itself.
macro_rules! script {
    ($($file:literal),+) => {
        Script {
            text: concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+),
            digest: OnceLock::new(),
        }
    };
}

pub(super) static EXCLUSIVE_ACQUIRE: Script = script!(
    "shared/now",
    "shared/expire",
    "shared/token",
    "shared/holds",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/place",
    "exclusive/ask",
    "exclusive/acquire"
);
pub(super) static EXCLUSIVE_RELEASE: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "exclusive/leave",
    "exclusive/release"
);
pub(super) static EXCLUSIVE_RECORD: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "record/keep",
    "exclusive/leave",
    "exclusive/release"
);
pub(super) static EXCLUSIVE_WITHDRAW: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "exclusive/leave",
    "exclusive/withdraw"
);

pub(super) static FAIR_ACQUIRE: Script = script!(
    "shared/now",
    "shared/expire",
    "shared/token",
    "shared/holds",
    "fair/queue",
    "fair/line_up",
    "fair/ask",
    "fair/acquire"
);
pub(super) static FAIR_RELEASE: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "fair/queue",
    "fair/wake",
    "fair/leave",
    "fair/release"
);
pub(super) static FAIR_RECORD: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "record/keep",
    "fair/queue",
    "fair/wake",
    "fair/leave",
    "fair/release"
);
pub(super) static FAIR_WITHDRAW: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "fair/queue",
    "fair/wake",
    "fair/withdraw"
);

pub(super) static READ_ACQUIRE: Script = script!(
    "shared/now",
    "shared/expire",
    "shared/holds",
    "shared/waiters",
    "shared/outside",
    "read/ask",
    "read/acquire"
);
pub(super) static READ_RELEASE: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/settle",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "read/leave",
    "read/release"
);
pub(super) static READ_WITHDRAW: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/settle",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/wake_all",
    "read/leave",
    "read/withdraw"
);

pub(super) static WRITE_ACQUIRE: Script = script!(
    "shared/now",
    "shared/expire",
    "shared/token",
    "shared/holds",
    "shared/sample",
    "shared/settle",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/place",
    "write/ask",
    "write/acquire"
);
pub(super) static WRITE_RELEASE: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/settle",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/wake_all",
    "write/pass",
    "write/leave",
    "write/release"
);
pub(super) static WRITE_RECORD: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/settle",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/wake_all",
    "record/keep",
    "write/pass",
    "write/leave",
    "write/release"
);
pub(super) static WRITE_WITHDRAW: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/settle",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/wake_all",
    "write/pass",
    "write/leave",
    "write/withdraw"
);

pub(super) static PERMIT_ACQUIRE: Script = script!(
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/place",
    "permit/stock",
    "permit/give",
    "permit/ask",
    "permit/acquire"
);
pub(super) static PERMIT_RELEASE: Script = script!(
    "shared/on_hash",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "permit/give",
    "permit/leave",
    "permit/release"
);
pub(super) static PERMIT_WITHDRAW: Script = script!(
    "shared/on_hash",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "permit/give",
    "permit/leave",
    "permit/withdraw"
);
pub(super) static PERMIT_SET: Script = script!(
    "shared/now",
    "shared/waiters",
    "shared/line",
    "permit/stock",
    "permit/give",
    "permit/set"
);

pub(super) static RELEASE_SEVERAL: Script = script!(
    "shared/on_hash",
    "shared/holds",
    "shared/sample",
    "shared/end_hold",
    "shared/settle",
    "shared/now",
    "shared/waiters",
    "shared/line",
    "shared/outside",
    "shared/wake_all",
    "fair/queue",
    "fair/wake",
    "write/pass",
    "exclusive/leave",
    "fair/leave",
    "read/leave",
    "write/leave",
    "permit/give",
    "permit/leave",
    "many/next",
    "many/release"
);

pub(super) static RECORD: Script = script!("record/read");
pub(super) static RECORD_SIZE: Script = script!("admin/record");
pub(super) static FORGET: Script = script!("admin/forget");
pub(super) static INSPECT: Script = script!(
    "shared/now",
    "shared/holds",
    "shared/sample",
    "admin/holders",
    "permit/look",
    "admin/inspect"
);
pub(super) static FORCE: Script = script!(
    "shared/now",
    "shared/holds",
    "shared/sample",
    "shared/wake_all",
    "shared/waiters",
    "shared/line",
    "fair/queue",
    "fair/wake",
    "write/pass",
    "admin/holders",
    "permit/stock",
    "permit/give",
    "permit/force",
    "admin/force"
);
pub(super) static RIGHTS: Script = script!("rights");
pub(super) static RENEW: Script = script!(
    "shared/on_hash",
    "shared/now",
    "permit/give",
    "permit/renew",
    "renew"
);
pub(super) static CHECK: Script = script!("shared/on_hash", "shared/now", "check");
pub(super) static CHECK_MARKED: Script =
    script!("replicas/mark", "shared/on_hash", "shared/now", "check");

/// Joins the questions of all modes, and a script that asks several of them.
macro_rules! several {
    ($file:literal) => {
        script!(
            "shared/now",
            "shared/expire",
            "shared/token",
            "shared/holds",
            "shared/sample",
            "shared/settle",
            "shared/waiters",
            "shared/line",
            "shared/outside",
            "shared/place",
            "fair/queue",
            "fair/line_up",
            "exclusive/ask",
            "fair/ask",
            "read/ask",
            "write/ask",
            "permit/stock",
            "permit/give",
            "permit/ask",
            "many/next",
            "many/ask_next",
            $file
        )
    };
}

pub(super) static ACQUIRE_ALL: Script = several!("many/all");
pub(super) static ACQUIRE_ANY: Script = several!("many/any");

impl Script {
    /// Begins a call about one lock: `keys` keys follow, then `args` arguments.
    pub(super) fn call(&'static self, names: Names<'_>, keys: usize, args: usize) -> Call {
        // A key is the lock's name, a prefix, an id and a suffix; an argument is at most an id. One allocation is enough.
        let bytes = 64 + keys * (names.lock().len() + 80) + args * 64;
        self.call_with_capacity(keys, args, bytes)
    }

    /// Begins a call whose keys and arguments are `bytes` long altogether.
    pub(super) fn call_with_capacity(
        &'static self,
        keys: usize,
        args: usize,
        bytes: usize,
    ) -> Call {
        let mut command = Cmd::with_capacity(3 + keys + args, bytes);
        command.arg("EVALSHA").arg(self.digest()).arg(keys);
        Call {
            script: self,
            command,
            keys,
        }
    }

    fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

/// A script with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    /// By digest.
    pub(super) command: Cmd,
    keys: usize,
}

impl Call {
    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// The same call with the script's text, for a server that does not know the digest.
    pub(super) fn in_full(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(self.script.text);
        for word in self.words().skip(2) {
            command.arg(word);
        }
        command
    }

    /// The keys of the call, in order.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let words: Vec<_> = self.words().skip(3).take(self.keys).collect();
        words.into_iter()
    }

    /// The arguments after the keys.
    pub(super) fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let words: Vec<_> = self.words().skip(3 + self.keys).collect();
        words.into_iter()
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().filter_map(|word| match word {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_script_file_is_longer_than_a_page() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("lua")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                let text = std::fs::read_to_string(&path).expect("text");
                assert!(text.lines().count() <= 60, "{} is too long", path.display());
                assert!(text.starts_with("-- "), "{} has no header", path.display());
            }
        }
        assert!(files > 20);
    }
}

//! The Lua scripts, and how they are called.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::mem;
use std::sync::OnceLock;

use redis::{Arg, Cmd, ToRedisArgs};

use super::names::Name;

/// A script with constant text. The store sends the digest, and the text only if the server does not know the digest.
pub(super) struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

/// Names scripts, each with its files in the folder `lua`: the shared steps, then the script itself.
macro_rules! scripts {
    ($($name:ident: $($file:literal)+;)+) => {
        $(pub(super) static $name: Script = Script {
            text: concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+),
            digest: OnceLock::new(),
        };)+
    };
}

scripts! {
    EXCLUSIVE_ACQUIRE:
        "exclusive/grant_free" "shared/expire" "shared/token" "exclusive/grant" "shared/now" "shared/holds"
        "shared/waiters" "shared/line" "shared/outside" "shared/place" "exclusive/ask" "exclusive/acquire";
    EXCLUSIVE_RELEASE:
        "exclusive/leave_lone" "shared/on_hash" "shared/outside" "shared/holds" "shared/sample" "shared/end_hold"
        "shared/now" "shared/waiters" "shared/line" "exclusive/leave" "exclusive/release";
    EXCLUSIVE_RECORD:
        "shared/on_hash" "record/keep" "exclusive/leave_lone" "shared/outside" "shared/holds" "shared/sample"
        "shared/end_hold" "shared/now" "shared/waiters" "shared/line" "exclusive/leave" "exclusive/release";
    EXCLUSIVE_WITHDRAW:
        "shared/on_hash" "shared/holds" "shared/sample" "shared/end_hold" "shared/now" "shared/waiters" "shared/line"
        "shared/outside" "exclusive/leave" "exclusive/withdraw";

    FAIR_ACQUIRE:
        "exclusive/grant_free" "shared/expire" "shared/token" "exclusive/grant" "shared/now" "shared/holds"
        "fair/queue" "fair/line_up" "fair/ask" "fair/acquire";
    FAIR_RELEASE:
        "exclusive/leave_lone" "shared/on_hash" "shared/holds" "shared/sample" "shared/end_hold" "shared/now"
        "shared/waiters" "shared/line" "fair/queue" "fair/wake" "fair/leave" "fair/release";
    FAIR_RECORD:
        "shared/on_hash" "record/keep" "exclusive/leave_lone" "shared/holds" "shared/sample" "shared/end_hold"
        "shared/now" "shared/waiters" "shared/line" "fair/queue" "fair/wake" "fair/leave" "fair/release";
    FAIR_WITHDRAW:
        "shared/on_hash" "shared/holds" "shared/sample" "shared/end_hold" "shared/now" "shared/waiters" "shared/line"
        "fair/queue" "fair/wake" "fair/withdraw";

    READ_ACQUIRE:
        "read/grant_free" "shared/expire" "read/grant" "shared/now" "shared/holds" "shared/waiters" "shared/outside"
        "read/ask" "read/acquire";
    READ_RELEASE:
        "read/leave_lone" "shared/on_hash" "shared/holds" "shared/sample" "shared/settle" "shared/now"
        "shared/waiters" "shared/line" "read/leave" "read/release";
    READ_WITHDRAW:
        "shared/on_hash" "shared/holds" "shared/sample" "shared/settle" "shared/now" "shared/waiters" "shared/line"
        "shared/wake_all" "read/leave" "read/withdraw";

    WRITE_ACQUIRE:
        "write/grant_free" "shared/expire" "shared/token" "write/grant" "shared/now" "shared/holds" "shared/sample"
        "shared/settle" "shared/waiters" "shared/line" "shared/outside" "shared/place" "write/ask" "write/acquire";
    WRITE_RELEASE:
        "write/leave_lone" "shared/on_hash" "shared/outside" "shared/wake_all" "shared/holds" "shared/sample"
        "shared/settle" "shared/now" "shared/waiters" "shared/line" "write/pass" "write/leave" "write/release";
    WRITE_RECORD:
        "shared/on_hash" "record/keep" "write/leave_lone" "shared/outside" "shared/wake_all" "shared/holds"
        "shared/sample" "shared/settle" "shared/now" "shared/waiters" "shared/line" "write/pass" "write/leave"
        "write/release";
    WRITE_WITHDRAW:
        "shared/on_hash" "shared/holds" "shared/sample" "shared/settle" "shared/now" "shared/waiters" "shared/line"
        "shared/outside" "shared/wake_all" "write/pass" "write/leave" "write/withdraw";

    PERMIT_ACQUIRE:
        "shared/now" "permit/give" "permit/grant_free" "shared/waiters" "shared/line" "shared/outside" "shared/place"
        "permit/stock" "permit/ask" "permit/acquire";
    PERMIT_RELEASE:
        "shared/now" "permit/leave_lone" "shared/on_hash" "shared/waiters" "shared/line" "shared/outside" "permit/give"
        "permit/leave" "permit/release";
    PERMIT_WITHDRAW:
        "shared/on_hash" "shared/now" "shared/waiters" "shared/line" "shared/outside" "permit/give" "permit/leave"
        "permit/withdraw";
    PERMIT_SET: "shared/now" "shared/waiters" "shared/line" "permit/stock" "permit/give" "permit/set";

    RELEASE_SEVERAL:
        "shared/on_hash" "shared/holds" "shared/sample" "shared/end_hold" "shared/settle" "shared/now"
        "shared/waiters" "shared/line" "shared/outside" "shared/wake_all" "fair/queue" "fair/wake" "write/pass"
        "exclusive/leave" "fair/leave" "read/leave" "write/leave" "permit/give" "permit/leave" "many/next"
        "many/release";
    RECORD: "record/read";
    RECORD_SIZE: "admin/record";
    FORGET: "admin/forget";
    ANNOUNCE: "process/announce";

    INSPECT: "shared/now" "shared/holds" "shared/sample" "admin/holders" "admin/waiters" "permit/look" "admin/inspect";

    FORCE:
        "shared/now" "shared/holds" "shared/sample" "shared/wake_all" "shared/waiters" "shared/line" "fair/queue"
        "fair/wake" "write/pass" "admin/holders" "permit/stock" "permit/give" "permit/force" "admin/force";
    RIGHTS: "rights";

    RENEW: "shared/writable" "shared/on_hash" "shared/now" "permit/give" "permit/renew" "renew";
    RENEW_MARKED:
        "shared/writable" "replicas/mark" "shared/on_hash" "shared/now" "permit/give" "permit/renew" "renew";

    ACQUIRE_ALL:
        "shared/now" "shared/expire" "shared/token" "shared/holds" "shared/sample" "shared/settle" "shared/waiters"
        "shared/line" "shared/outside" "shared/place" "fair/queue" "fair/line_up" "exclusive/grant" "exclusive/ask"
        "fair/ask" "read/grant" "read/ask" "write/grant" "write/ask" "permit/stock" "permit/give" "permit/ask"
        "many/next" "many/ask_next" "many/all";
    ACQUIRE_ANY:
        "shared/now" "shared/expire" "shared/token" "shared/holds" "shared/sample" "shared/settle" "shared/waiters"
        "shared/line" "shared/outside" "shared/place" "fair/queue" "fair/line_up" "exclusive/grant" "exclusive/ask"
        "fair/ask" "read/grant" "read/ask" "write/grant" "write/ask" "permit/stock" "permit/give" "permit/ask"
        "many/next" "many/ask_next" "many/any";
}

impl Script {
    /// Begins a call with these keys.
    pub(super) fn call<'k, K: Borrow<Name<'k>> + ToRedisArgs>(
        &'static self,
        keys: impl IntoIterator<Item = K, IntoIter: Clone>,
    ) -> Call {
        self.begin(keys.into_iter(), |key| key.borrow().longest())
    }

    /// Begins a call with the keys of other calls.
    pub(super) fn call_with_words<'k>(
        &'static self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
    ) -> Call {
        self.begin(keys, |word| word.len())
    }

    /// One allocation is enough: there are about as many arguments as keys, and an argument is at most an id.
    fn begin<K: ToRedisArgs>(
        &'static self,
        keys: impl Iterator<Item = K> + Clone,
        length: impl Fn(&K) -> usize,
    ) -> Call {
        let count = keys.clone().count();
        let mut command = spare_command().unwrap_or_else(|| {
            let bytes = keys.clone().map(|key| length(&key) + 64).sum::<usize>();
            Cmd::with_capacity(16 + 2 * count, 512 + bytes)
        });
        command.arg("EVALSHA").arg(self.digest()).arg(count);
        for key in keys {
            command.arg(key);
        }
        Call {
            script: self,
            command,
            keys: count,
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

/// Tells scripts apart: the address of the text.
pub(super) type ScriptId = usize;

impl Call {
    pub(super) fn script_id(&self) -> ScriptId {
        self.script.text.as_ptr().addr()
    }

    /// Adds an argument, or a tuple of them.
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

/// The most commands that a thread keeps for reuse, and the most bytes in a command that is kept: a pair of acquire and release
/// has less, a record or a batch may have more.
const SPARES: usize = 32;
const LONGEST_SPARE: usize = 1024;

thread_local! {
    /// Commands whose calls have ended, for their memory.
    static SPARE: RefCell<Vec<Cmd>> = const { RefCell::new(Vec::new()) };
}

/// An empty command with memory. A thread that ends has none.
fn spare_command() -> Option<Cmd> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    spare.ok().flatten()
}

impl Drop for Call {
    fn drop(&mut self) {
        let length: usize = self.words().map(<[u8]>::len).sum();
        if length > LONGEST_SPARE {
            return;
        }
        let mut command = mem::take(&mut self.command);
        command.clear();
        // Without a place it is dropped.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(command);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, EXCLUSIVE_ACQUIRE, LONGEST_SPARE, SPARE, SPARES};

    fn spares() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    fn call(keys: &[&[u8]]) -> Call {
        EXCLUSIVE_ACQUIRE.call_with_words(keys.iter().copied())
    }

    #[test]
    fn a_reused_command_has_nothing_of_its_former_call() {
        SPARE.with_borrow_mut(Vec::clear);
        drop(call(&[b"a", b"b"]).arg("30000"));
        assert_eq!(spares(), 1);
        let next = call(&[b"c"]);
        assert_eq!(spares(), 0);
        assert_eq!(next.keys().collect::<Vec<_>>(), [b"c"]);
        assert_eq!(next.args().len(), 0);
    }

    #[test]
    fn a_thread_keeps_few_and_short_commands() {
        SPARE.with_borrow_mut(Vec::clear);
        drop(call(&[b"a"]).arg(vec![0_u8; LONGEST_SPARE]));
        assert_eq!(spares(), 0);
        let many: Vec<_> = (0..2 * SPARES).map(|_| call(&[b"a"])).collect();
        drop(many);
        assert_eq!(spares(), SPARES);
    }

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
                assert!(text.lines().count() <= 80, "{} is too long", path.display());
                assert!(text.starts_with("-- "), "{} has no header", path.display());
            }
        }
        assert!(files > 20);
    }
}

//! The Lua scripts, and how they are called.

use std::cell::RefCell;
use std::mem;
use std::sync::OnceLock;
use std::time::Duration;

use redis::{Arg, Cmd, ToRedisArgs};

use super::names::Name;
use crate::limits::FOR_EVER;

/// A script with constant text. The store sends the digest, and the text only if the server does not know the digest.
pub(super) struct Script {
    parts: &'static [Part],
    known: OnceLock<Known>,
}

/// A file of the folder `lua`, and the sections of it that a script needs; all of them if none is named.
struct Part {
    file: &'static str,
    sections: &'static [&'static str],
}

/// What the server gets.
struct Known {
    text: String,
    digest: String,
}

/// Names scripts, each with its parts in their order: `lua/README.md` says what each of them does.
macro_rules! scripts {
    ($($name:ident: $($file:ident $([$($section:ident)+])?)+;)+) => {
        $(pub(super) static $name: Script = Script {
            parts: &[$(Part {
                file: include_str!(concat!("../../../../lua/", stringify!($file), ".lua")),
                sections: &[$($(stringify!($section)),+)?],
            }),+],
            known: OnceLock::new(),
        };)+

        #[cfg(test)]
        pub(super) const ALL: &[(&str, &Script)] = &[$((stringify!($name), &$name)),+];
    };
}

scripts! {
    EXCLUSIVE_ACQUIRE: exclusive[grant_free] time[now state ask] hash[kinds redissons grant token] line[first wait beside]
        outside[turn ask] exclusive[grant ask acquire];
    EXCLUSIVE_RELEASE: hash[record] exclusive[leave_lone] time[now state withdraw] hash[kinds fields leave alone]
        line[first withdraw] outside[turn give] queue[first wake] exclusive[leave release];
    FAIR_ACQUIRE: fair[grant_free] time[now state ask] hash[kinds grant token] queue[first join]
        exclusive[grant] fair[ask acquire];
    FAIR_RELEASE: hash[record] fair[leave_lone] time[now state withdraw] hash[kinds fields leave alone] line[first]
        queue[first wake] fair[leave release];
    READ_ACQUIRE: read[grant_free] time[now state ask] hash[kinds redissons grant] line[waiting] read_write[ask]
        read[ask acquire];
    READ_RELEASE: read[leave_lone] time[now state withdraw] hash[kinds fields leave] line[first waiting]
        read_write[settle wake] read[leave release];
    WRITE_ACQUIRE: write[grant_free] time[now state ask] hash[kinds redissons grant fields token]
        line[first waiting wait beside] outside[turn ask] read_write[ask settle] write[ask acquire];
    WRITE_RELEASE: hash[record] write[leave_lone] time[now state withdraw] hash[kinds redissons fields leave alone]
        line[first waiting withdraw] outside[turn give] read_write[wake] write[leave release];
    PERMIT_ACQUIRE: time[now] stock[number] permit[grant_free] time[state ask] stock[keep stock] line[first wait beside]
        outside[turn ask] permit[ask acquire];
    PERMIT_RELEASE: time[now] stock[number] permit[leave_lone] time[state withdraw] hash[leave] line[first withdraw]
        outside[turn give] stock[give] permit[leave release];
    PERMIT_SET: time[now state] line[first] stock[number keep stock set];
    RENEW: renew[writable] time[now] hash[leave] stock[keep renew] renew[renew];
    ACQUIRE_SEVERAL: time[now state ask] hash[kinds redissons grant fields token] line[first waiting wait beside]
        outside[turn ask] queue[first join] read_write[ask settle] stock[number keep stock] exclusive[grant ask] fair[ask]
        read[ask] write[ask] permit[ask] many;
    RECORD: renew[writable] hash[recorded];
    INSPECT: time[now state] hash[kinds fields] stock[number] inspect;
    FORCE: time[now state] hash[kinds fields] line[first waiting] queue[first wake] read_write[wake]
        inspect[holders] stock[number give stock] force;
    RIGHTS: rights;
}

impl Part {
    /// Its lines of code. A section begins with a line `--# name`; comments are for readers.
    fn code(&self) -> impl Iterator<Item = &'static str> {
        let mut wanted = true;
        self.file.lines().map(str::trim).filter(move |line| {
            if let Some(section) = line.strip_prefix("--# ") {
                wanted = self.sections.is_empty() || self.sections.contains(&section);
            }
            wanted && !line.is_empty() && !line.starts_with("--")
        })
    }
}

impl Script {
    /// Begins a call with these keys.
    pub(crate) fn call<K: ToRedisArgs>(
        &'static self,
        keys: impl IntoIterator<Item = K, IntoIter: Clone>,
    ) -> Call {
        let keys = keys.into_iter();
        let count = keys.clone().count();
        // Room for the words of a pair.
        let mut command = spare_command().unwrap_or_else(|| Cmd::with_capacity(24, LONGEST_SPARE));
        command.arg("EVALSHA").arg(&self.known().digest).arg(count);
        for key in keys {
            command.arg(key);
        }
        Call {
            script: Some(self),
            command,
            keys: count,
        }
    }

    fn known(&self) -> &Known {
        self.known.get_or_init(|| {
            let lines: Vec<_> = self.parts.iter().flat_map(Part::code).collect();
            let text = lines.join("\n");
            let digest = redis::Script::new(&text).get_hash().to_owned();
            Known { text, digest }
        })
    }
}

/// A script with its keys and arguments, or a command about one key.
pub(crate) struct Call {
    script: Option<&'static Script>,
    /// A script is called by its digest.
    pub(crate) command: Cmd,
    keys: usize,
}

impl Call {
    /// Begins a command about one key.
    pub(crate) fn about(name: &str, key: Name<'_>) -> Self {
        let mut command = Cmd::new();
        command.arg(name).arg(key);
        Self {
            script: None,
            command,
            keys: 1,
        }
    }

    /// What the server knows the script by; empty for a command.
    pub(crate) fn digest(&self) -> &'static str {
        self.script.map_or("", |script| &script.known().digest)
    }

    /// Adds an argument, or a tuple of them.
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// The same call with the script's text, for a server that does not know the digest.
    pub(crate) fn in_full(&self) -> Cmd {
        let Some(script) = self.script else {
            return self.command.clone();
        };
        let mut command = Cmd::new();
        command.arg("EVAL").arg(&script.known().text);
        for word in self.words().skip(2) {
            command.arg(word);
        }
        command
    }

    /// The keys of the script, in order.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
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

/// Whole milliseconds, rounded up: never less than `duration`, and never zero.
pub(crate) fn ms(duration: Duration) -> u64 {
    let ms = duration.min(FOR_EVER).as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(ms).expect("it is bounded")
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
    use super::{ALL, Call, EXCLUSIVE_ACQUIRE, LONGEST_SPARE, Part, SPARE, SPARES};

    fn spares() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    fn call(keys: &[&[u8]]) -> Call {
        EXCLUSIVE_ACQUIRE.call(keys.iter().copied())
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
    fn every_file_of_scripts_is_one_noun_and_every_section_is_used() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        let mut files = 0;
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|end| end != "lua") {
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).expect("text");
            let name = path.display();
            assert!(text.lines().count() <= 160, "{name} is too long");
            assert!(text.starts_with("-- "), "{name} has no header");
            let parts = || ALL.iter().flat_map(|(_, script)| script.parts);
            let parts = || parts().filter(|part| part.file == text);
            assert!(parts().next().is_some(), "{name} is in no script");
            for section in text.lines().filter_map(|line| line.strip_prefix("--# ")) {
                let has =
                    |part: &Part| part.sections.is_empty() || part.sections.contains(&section);
                assert!(parts().any(has), "{name}: {section} is in no script");
            }
        }
        assert!(files > 10);
        for (name, script) in ALL {
            for part in script.parts {
                for section in part.sections {
                    let begins = format!("\n--# {section}\n");
                    assert!(part.file.contains(&begins), "{name}: no section {section}");
                }
            }
        }
    }

    #[test]
    fn a_server_gets_no_comments() {
        for (name, script) in ALL {
            let text = &script.known().text;
            assert!(!text.lines().any(|line| line.starts_with("--")), "{name}");
            assert!(text.contains("redis."), "{name}");
        }
    }
}

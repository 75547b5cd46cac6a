//! The floors of the Redis store: see what it says to a server without a server, and how a connection heals without locks.

use super::imports::{File, Import, files, imports};
use super::{HOUSES, tree};
use crate::support::project::read;

pub(super) const FOLDER: &[&str] = &["store", "redis"];

pub(super) const FLOORS: &[&[&str]] = &[
    &["protocol"],
    &["link"],
    &["listen"],
    &["servers"],
    &["operate"],
    &["builder", "operations", "batches", "outside"],
];

/// Words of code that waits, or that reaches a socket, a file, a thread or a clock.
const IO: &[&str] = &[
    "Instant",
    "SystemTime",
    "aio",
    "async",
    "await",
    "fs",
    "futures_util",
    "io",
    "net",
    "process",
    "thread",
    "tokio",
    "tokio_util",
];

/// What a connection need not know: the contract of a store, and what is said about locks.
const LOCKS: &[&[&str]] = &[
    &["lock"],
    &["store"],
    &["store", "redis", "protocol", "calls"],
    &["store", "redis", "protocol", "many"],
    &["store", "redis", "protocol", "names"],
    &["store", "redis", "protocol", "reply"],
];

fn is_on(floor: &str, module: &[String]) -> bool {
    HOUSES[1].room(module) == Some(floor)
}

/// The lines of code with a word of [`IO`].
fn io(file: &File) -> Vec<String> {
    let lines = (1..).zip(file.text.lines());
    let code = lines.map(|(n, line)| (n, line.split("//").next().unwrap_or_default()));
    let found = code.filter(|(_, code)| {
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| IO.contains(&word))
    });
    found
        .map(|(n, code)| format!("{}:{n}: {}", file.path.display(), code.trim()))
        .collect()
}

#[test]
fn the_protocol_does_no_io() {
    let files = files("src").into_iter();
    let files: Vec<_> = files
        .filter(|file| is_on("protocol", &file.module))
        .collect();
    assert!(files.len() > 8, "only {} files were found", files.len());
    let found: Vec<_> = files.iter().flat_map(io).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_link_knows_no_locks() {
    let known = knows_locks(&imports(&files("src")));
    assert!(known.is_empty(), "\n{}", known.join("\n"));
}

fn knows_locks(imports: &[Import]) -> Vec<String> {
    let of_links = imports.iter().filter(|import| is_on("link", &import.from));
    let known = of_links.filter(|import| LOCKS.iter().any(|locks| import.to == *locks));
    known
        .map(|import| format!("{} imports {}", import.place(), import.to.join("::")))
        .collect()
}

#[test]
fn io_in_the_protocol_an_import_upwards_and_a_lock_in_a_link_are_found() {
    let text = "// tokio\nfn a() {}\nuse redis::{Cmd, aio::MultiplexedConnection};\nstd::net::TcpStream::connect(b)\n";
    let file = File::new("names.rs".as_ref(), Vec::new(), text);
    let lines: Vec<_> = io(&file);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("names.rs:3"), "{lines:?}");

    let imports = tree(&[
        ("lock.rs", ""),
        ("store/redis.rs", ""),
        (
            "store/redis/protocol/names.rs",
            "use crate::store::redis::servers::node::Node;",
        ),
        ("store/redis/link/wire.rs", "use crate::lock::LockKey;"),
        (
            "store/redis/servers/node.rs",
            "use crate::store::redis::link::wire::Wire;\nuse crate::lock::LockKey;",
        ),
    ]);
    assert_eq!(
        HOUSES[1].upward(&imports),
        ["store/redis/protocol/names.rs:1 imports crate::store::redis::servers"]
    );
    assert_eq!(
        knows_locks(&imports),
        ["store/redis/link/wire.rs:1 imports lock"]
    );
}

#[test]
fn the_page_names_the_floors_of_the_code() {
    let page = read("ARCHITECTURE.md").replace('\n', " ");
    let (_, floors) = page
        .split_once("`store/redis` has floors too, from the ground: ")
        .expect("a sentence");
    let (floors, _) = floors.split_once(". ").expect("its end");
    let named = floors.split(" · ").map(|floor| {
        let names = floor.split(" (").next().unwrap_or_default();
        names
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .collect()
    });
    let named: Vec<Vec<_>> = named.collect();
    assert_eq!(named, FLOORS, "left: ARCHITECTURE.md; right: FLOORS");
}

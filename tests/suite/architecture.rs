//! The modules of the crate are on floors, and what a module names is on its own floor or below. The tests read the
//! `use` lines and the paths of `src`.

mod imports;
mod redis_store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::project::{read, root};
use imports::{File, Import, files, imports, module};

/// The modules of a folder on their floors, from the ground up. A module imports what is on its own floor or below.
struct House {
    folder: &'static [&'static str],
    floors: &'static [&'static [&'static str]],
}

const HOUSES: &[House] = &[
    House {
        folder: &[],
        floors: FLOORS,
    },
    House {
        folder: redis_store::FOLDER,
        floors: redis_store::FLOORS,
    },
];

const FLOORS: &[&[&str]] = &[
    &["backoff", "sync"],
    &["lock"],
    &["error", "limits"],
    &["audit", "telemetry"],
    &["store"],
    &["hold"],
    &["table"],
    &["spawn"],
    &["release"],
    &["contend", "guard", "keeper"],
    &["client"],
    &["work"],
    &["admin"],
    &["key"],
    &["layer"],
    &["idempotency"],
    &["extract", "guide"],
];

#[test]
fn every_module_has_a_floor() {
    let files = files("src");
    for house in HOUSES {
        let modules = files.iter().filter_map(|file| house.room(&file.module));
        let modules: BTreeSet<_> = modules.collect();
        let known: BTreeSet<_> = house.floors.iter().copied().flatten().copied().collect();
        assert_eq!(modules, known, "left: modules of src; right: floors");
    }
}

#[test]
fn no_import_points_to_a_higher_floor() {
    let imports = imports(&files("src"));
    assert!(
        imports.len() > 300,
        "only {} imports were found",
        imports.len()
    );
    for house in HOUSES {
        let wrong = house.upward(&imports);
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}

#[test]
fn no_imports_go_in_a_circle() {
    for tree in [
        "src",
        "crates/lockctl/src",
        "crates/testing/src",
        "crates/console/src",
    ] {
        let imports = imports(&files(tree));
        assert!(
            imports.len() > 20,
            "{tree}: only {} imports were found",
            imports.len()
        );
        let circles = circles(&imports);
        assert!(circles.is_empty(), "\n{}", circles.join("\n\n"));
    }
}

/// Paths in expressions and re-exports of the crate are imports too.
#[test]
fn an_import_without_a_line_of_its_own_is_found() {
    let inline = tree(&[
        ("store.rs", "pub use erased::Erased;"),
        ("store/erased.rs", "use super::ext;"),
        (
            "store/ext.rs",
            "fn only() {\n    super::erased::wrong_size(1) // crate::console::x\n}",
        ),
        ("console.rs", ""),
    ]);
    let expected = "store/erased.rs:1 imports store::ext\nstore/ext.rs:2 imports store::erased";
    assert_eq!(circles(&inline), [expected]);
    assert_eq!(HOUSES[0].upward(&inline), [""; 0]);
    let through_the_root = tree(&[
        ("lib.rs", "pub use guard::{Ended, LockGuard as Guard};"),
        ("guard.rs", ""),
        (
            "store.rs",
            "use crate::Guard;\nfn ended() -> crate::Ended {}",
        ),
    ]);
    let expected = [
        "store.rs:1 imports crate::guard",
        "store.rs:2 imports crate::guard",
    ];
    assert_eq!(HOUSES[0].upward(&through_the_root), expected);
    let two_files = tree(&[
        ("audit/a.rs", "use crate::telemetry::b::B;"),
        ("audit/c.rs", ""),
        ("telemetry/b.rs", ""),
        ("telemetry/d.rs", "use crate::audit::c;"),
    ]);
    assert_eq!(circles(&two_files).len(), 1);
    let two_folders = tree(&[
        ("store/redis/a.rs", "use crate::store::memory::b::B;"),
        ("store/redis/d.rs", ""),
        ("store/memory/b.rs", ""),
        ("store/memory/c.rs", "use crate::store::redis::d;"),
    ]);
    assert_eq!(circles(&two_folders).len(), 1);
}

/// The imports of files with these paths and texts.
fn tree(texts: &[(&str, &str)]) -> Vec<Import> {
    let texts = texts.iter().map(|(path, text)| {
        let path = Path::new(path);
        File::new(path, module(path), text)
    });
    imports(&texts.collect::<Vec<_>>())
}

impl House {
    /// The module of the folder that this one is, or is in.
    fn room<'a>(&self, module: &'a [String]) -> Option<&'a str> {
        let (folder, rest) = module.split_at_checked(self.folder.len())?;
        let room = rest.first().filter(|_| folder == self.folder);
        room.map(String::as_str)
    }

    fn floor(&self, module: &[String]) -> Option<usize> {
        let room = self.room(module)?;
        let floor = self.floors.iter().position(|floor| floor.contains(&room));
        Some(floor.expect("every_module_has_a_floor"))
    }

    fn upward(&self, imports: &[Import]) -> Vec<String> {
        let within = imports.iter().filter_map(|import| {
            Some((import, self.floor(&import.from)?, self.floor(&import.to)?))
        });
        let upward = within.filter(|(_, from, to)| to > from);
        let named = upward.map(|(import, ..)| {
            let to = import.to[..=self.folder.len()].join("::");
            format!("{} imports crate::{to}", import.place())
        });
        named.collect()
    }
}

/// The circles of the modules at which the paths of an import's two ends part: of files, of folders, of modules of one floor.
fn circles(imports: &[Import]) -> Vec<String> {
    let mut edges: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for import in imports {
        let ends = import.from.iter().zip(&import.to);
        let shared = ends.take_while(|(from, to)| from == to).count();
        let [from, to] = [&import.from, &import.to].map(|end| end[..=shared].join("::"));
        let edges = edges.entry(from).or_default();
        edges.entry(to).or_insert(import.place());
    }
    edges
        .keys()
        .filter_map(|start| circle(&edges, start))
        .collect()
}

#[test]
fn the_picture_of_the_floors_is_that_of_the_code() {
    let page = read("ARCHITECTURE.md");
    let (_, picture) = page.split_once("```text\n").expect("a picture");
    let (picture, _) = picture.split_once("\n```").expect("its end");
    let floors = picture.lines().map(|line| {
        let names = line.split("  ").next().unwrap_or_default();
        names.split(", ").collect::<Vec<_>>()
    });
    let floors: Vec<_> = floors.collect();
    let expected: Vec<_> = FLOORS.iter().rev().map(|names| names.to_vec()).collect();
    assert_eq!(floors, expected, "left: ARCHITECTURE.md; right: FLOORS");
}

#[test]
fn http_is_known_where_the_page_says_so() {
    let page = read("ARCHITECTURE.md");
    let (page, _) = page.split_once(" know HTTP.").expect("a sentence");
    let (_, names) = page.rsplit_once("Only ").expect("its begin");
    let named: BTreeSet<_> = names.split('`').skip(1).step_by(2).collect();
    let knows_http = |file: &File| {
        let mut lines = file.text.lines().filter_map(|line| line.split("//").next());
        lines.any(|code| {
            ["http::", "http_body", "axum::"]
                .iter()
                .any(|name| code.contains(name))
        })
    };
    let files = files("src").into_iter().filter(knows_http);
    let known: BTreeSet<_> = files.filter_map(|file| top(&file.module)).collect();
    assert!(known.iter().eq(named), "{known:?}");
}

#[test]
fn a_store_has_ten_methods() {
    let text = read("src/store.rs");
    let (_, contract) = text.split_once("\npub trait LockStore:").expect("a trait");
    let (contract, _) = contract.split_once("\n}").expect("its end");
    let methods = contract.lines().filter(|line| line.starts_with("    fn "));
    assert_eq!(methods.count(), 10);
}

/// By the counter that contributors run: without blank lines, comments and tests.
#[test]
fn no_file_has_more_than_300_lines_of_code() {
    let counter = root().join("scripts/lines");
    let counted = Command::new(counter).arg("--files").output();
    let counted = counted.expect("scripts/lines runs");
    let counted = String::from_utf8(counted.stdout).expect("text");
    let lengths = counted.lines().map(|line| {
        let (length, file) = line.split_once(' ').expect("a length and a file");
        (length.parse::<usize>().expect("a number"), file)
    });
    let lengths: Vec<_> = lengths.collect();
    assert!(lengths.len() > 150, "{} files were counted", lengths.len());
    let long: Vec<_> = lengths.iter().filter(|(length, _)| *length > 300).collect();
    assert!(long.is_empty(), "{long:?}");
}

/// A shortest path from `start` back to itself, reported once: from the first of its modules.
fn circle(edges: &BTreeMap<String, BTreeMap<String, String>>, start: &str) -> Option<String> {
    let mut ways: BTreeMap<&str, Vec<String>> = BTreeMap::from([(start, Vec::new())]);
    let mut next = vec![start];
    while let Some(module) = (!next.is_empty()).then(|| next.remove(0)) {
        for (to, place) in edges.get(module).into_iter().flatten() {
            let mut way = ways[module].clone();
            way.push(format!("{place} imports {to}"));
            if to == start {
                let first = ways
                    .keys()
                    .all(|seen| way.len() == 1 || start <= *seen || !on(&way, seen));
                return first.then(|| way.join("\n"));
            }
            if !ways.contains_key(to.as_str()) {
                ways.insert(to, way);
                next.push(to);
            }
        }
    }
    None
}

fn on(way: &[String], module: &str) -> bool {
    way.iter()
        .any(|step| step.ends_with(&format!(" imports {module}")))
}

fn top(module: &[String]) -> Option<String> {
    module.first().cloned()
}

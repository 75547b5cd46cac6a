//! The modules of the crate are on floors, and imports point down. This test reads the `use` lines of
//! `src`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::project::root;

/// The floors, from the ground up. A module imports what is on its own floor or below.
const FLOORS: &[&[&str]] = &[
    &["backoff", "shared_table", "sync"],
    &["lock"],
    &["error", "limits"],
    &["audit", "telemetry"],
    &["store"],
    &["cleanup"],
    &["watchdog"],
    &["background"],
    &["queue"],
    &["guard"],
    &["client"],
    &["work"],
    &["admin"],
    &["key"],
    &["layer"],
    &["idempotency"],
    &["console"],
    &["extract", "guide", "testing"],
];

/// One name that one file imports.
struct Import {
    file: PathBuf,
    line: usize,
    from: Vec<String>,
    to: Vec<String>,
}

impl Import {
    fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}

#[test]
fn every_module_has_a_floor() {
    let modules: BTreeSet<_> = files()
        .into_iter()
        .filter_map(|file| top(&file.module))
        .collect();
    let known: BTreeSet<_> = FLOORS
        .iter()
        .copied()
        .flatten()
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(modules, known, "left: modules of src; right: FLOORS");
}

#[test]
fn no_import_points_to_a_higher_floor() {
    let mut wrong = Vec::new();
    for import in imports() {
        let (Some(from), Some(to)) = (top(&import.from), top(&import.to)) else {
            continue;
        };
        if floor(&to) > floor(&from) {
            wrong.push(format!("{} imports crate::{to}", import.place()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_imports_go_in_a_circle() {
    let mut edges: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for import in imports() {
        let (from, to) = (import.from.join("::"), import.to.join("::"));
        let place = import.place();
        edges.entry(from).or_default().entry(to).or_insert(place);
    }
    let circles: Vec<_> = edges
        .keys()
        .filter_map(|start| circle(&edges, start))
        .collect();
    assert!(circles.is_empty(), "\n{}", circles.join("\n\n"));
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
    assert!(lengths.len() > 250, "{} files were counted", lengths.len());
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

/// All imports between modules of which neither contains the other, without those of tests.
fn imports() -> Vec<Import> {
    let files = files();
    let modules: BTreeSet<_> = files.iter().map(|file| file.module.clone()).collect();
    let mut imports = Vec::new();
    for file in &files {
        for (line, path) in used(&file.text) {
            let Some(to) = resolve(&file.module, &path, &modules) else {
                continue;
            };
            if !to.starts_with(&file.module) && !file.module.starts_with(&to) {
                imports.push(Import {
                    file: file.path.clone(),
                    line,
                    from: file.module.clone(),
                    to,
                });
            }
        }
    }
    assert!(
        imports.len() > 300,
        "only {} imports were found",
        imports.len()
    );
    imports
}

struct File {
    path: PathBuf,
    module: Vec<String>,
    /// Without the tests at its end.
    text: String,
}

/// The files of `src`, without those for tests only.
fn files() -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // Binaries are above the library, and import it by its name.
                if path != root.join("src/bin") {
                    folders.push(path);
                }
                continue;
            }
            let inside = path.strip_prefix(root.join("src")).expect("below src");
            let module = module(inside);
            let tests = |name: &String| name == "tests" || name == "exploration";
            if path.extension().is_some_and(|kind| kind == "rs") && !module.iter().any(tests) {
                let text = fs::read_to_string(&path).expect("text");
                let text = text.split("\n#[cfg(test)]\nmod tests {").next();
                files.push(File {
                    path: path.strip_prefix(&root).expect("below").to_owned(),
                    text: text.unwrap_or_default().to_owned(),
                    module,
                });
            }
        }
    }
    files
}

fn module(file: &Path) -> Vec<String> {
    let path = file.with_extension("");
    let names = path
        .iter()
        .map(|name| name.to_str().expect("UTF-8").to_owned());
    names
        .filter(|name| name != "lib" && name != "mod")
        .collect()
}

/// Every path that the text imports, with the line on which its `use` begins.
fn used(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let code = line.trim_start();
        let code = code.strip_prefix("pub").map_or(code, |rest| {
            let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            rest.map_or(code.trim_start_matches("pub"), |(_, rest)| rest)
        });
        let Some(first) = code.trim_start().strip_prefix("use ") else {
            continue;
        };
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().expect("a `use` ends").1);
        }
        let tree: String = tree
            .split(';')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        found.extend(expand(&tree).into_iter().map(|path| (index + 1, path)));
    }
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![
            path.split("::")
                .map(|name| name.trim().to_owned())
                .collect(),
        ];
    };
    let inner = rest.trim_end().strip_suffix('}').expect("braces match");
    let head: Vec<_> = head
        .split("::")
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    let (mut depth, mut start, mut branches) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    let branches = branches
        .into_iter()
        .filter(|branch| !branch.trim().is_empty());
    branches
        .flat_map(expand)
        .map(|path| [head.clone(), path].concat())
        .collect()
}

/// The module of this crate that a path names, or that contains the named item.
fn resolve(
    module: &[String],
    path: &[String],
    modules: &BTreeSet<Vec<String>>,
) -> Option<Vec<String>> {
    let mut full = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            [&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()
        }
        // A child, or another crate.
        _ => [module, path].concat(),
    };
    let found = loop {
        if modules.contains(&full) {
            break full;
        }
        full.pop()?;
    };
    (!found.is_empty()).then_some(found)
}

fn top(module: &[String]) -> Option<String> {
    module.first().cloned()
}

fn floor(module: &str) -> usize {
    let floor = FLOORS.iter().position(|floor| floor.contains(&module));
    floor.expect("every_module_has_a_floor")
}

#[test]
fn a_tree_of_imports_is_read_whole() {
    let text = "use a::b;\npub(crate) use crate::{c as d,\n    e::{self, F}};\n// use x::y;\n";
    let paths: Vec<_> = used(text)
        .into_iter()
        .map(|(line, path)| format!("{line} {}", path.join("::")))
        .collect();
    assert_eq!(
        paths,
        ["1 a::b", "2 crate::c", "2 crate::e::self", "2 crate::e::F"]
    );
}

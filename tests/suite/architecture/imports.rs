//! The imports of a source tree, read from its text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::project::root;

/// One name that one file imports, or names by its path.
pub(super) struct Import {
    file: PathBuf,
    line: usize,
    pub(super) from: Vec<String>,
    pub(super) to: Vec<String>,
}

impl Import {
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}

pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) module: Vec<String>,
    /// Without the tests at its end.
    pub(super) text: String,
}

/// The files below a root of modules, without those for tests only.
pub(super) fn files(tree: &str) -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    let mut folders = vec![root.join(tree)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let module = module(path.strip_prefix(root.join(tree)).expect("below the tree"));
            let tests = |name: &String| name == "tests" || name == "exploration";
            if path.extension().is_some_and(|kind| kind == "rs") && !module.iter().any(tests) {
                let text = fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(&root).expect("below");
                files.push(File::new(path, module, &text));
            }
        }
    }
    files
}

impl File {
    pub(super) fn new(path: &Path, module: Vec<String>, text: &str) -> Self {
        let text = text.split("\nmod tests {").next();
        Self {
            path: path.to_owned(),
            module,
            text: text.unwrap_or_default().to_owned(),
        }
    }
}

/// The module of a file, by its path from the root of the tree.
pub(super) fn module(file: &Path) -> Vec<String> {
    let path = file.with_extension("");
    let names = path
        .iter()
        .map(|name| name.to_str().expect("UTF-8").to_owned());
    names
        .filter(|name| !["lib", "main", "mod"].contains(&name.as_str()))
        .collect()
}

/// All imports between modules of which neither contains the other.
pub(super) fn imports(files: &[File]) -> Vec<Import> {
    let modules = files
        .iter()
        .map(|file| (file.module.clone(), used(&file.text)));
    let modules: Modules = modules.collect();
    let mut imports = Vec::new();
    for file in files {
        let mut named = modules[&file.module].clone();
        named.extend(inline(&file.text));
        for name in named {
            let Some(to) = resolve(&file.module, &name.path, &modules) else {
                continue;
            };
            if !to.starts_with(&file.module) && !file.module.starts_with(&to) {
                imports.push(Import {
                    file: file.path.clone(),
                    line: name.line,
                    from: file.module.clone(),
                    to,
                });
            }
        }
    }
    imports
}

/// A path in the text of a file.
#[derive(Clone)]
struct Named {
    line: usize,
    path: Vec<String>,
    /// What the file calls it.
    name: String,
}

/// The modules of a tree, each with what it imports: a re-export leads to the module of the item.
type Modules = BTreeMap<Vec<String>, Vec<Named>>;

/// What the text imports, each with the line on which its `use` begins.
fn used(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(first) = after_use(line) else {
            continue;
        };
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().expect("a `use` ends").1);
        }
        let tree = tree.split(';').next().unwrap_or_default();
        found.extend(expand(tree).into_iter().map(|(path, name)| Named {
            line: index + 1,
            path,
            name,
        }));
    }
    found
}

/// What follows the word `use`, with any visibility before it.
fn after_use(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let code = code.strip_prefix("pub").map_or(code, |rest| {
        let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        rest.map_or(code.trim_start_matches("pub"), |(_, rest)| rest)
    });
    code.trim_start().strip_prefix("use ")
}

/// The paths of a tree such as `a::{b, c::{d, e as f}}`, and the name that each gets.
fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = names(path);
        let own = path.iter().rfind(|name| *name != "self");
        let name = match alias.trim() {
            "" => own.cloned().unwrap_or_default(),
            alias => alias.to_owned(),
        };
        return vec![(path, name)];
    };
    let inner = rest.trim_end().strip_suffix('}').expect("braces match");
    let head = names(head);
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
        .map(|(path, name)| ([head.clone(), path].concat(), name))
        .collect()
}

fn names(path: &str) -> Vec<String> {
    let names = path.split("::").map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The paths from `crate`, `super` or `self` outside of `use`: in expressions, types and macros.
fn inline(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if code.trim_start().starts_with("#[") || after_use(code).is_some() {
            continue;
        }
        for root in ["crate::", "super::", "self::"] {
            for (at, _) in code.match_indices(root) {
                let before = &code[..at];
                let inside = before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
                if inside || before.ends_with("(in ") {
                    continue;
                }
                let path = code[at..].split(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
                found.push(Named {
                    line: index + 1,
                    path: names(path.into_iter().next().unwrap_or_default()),
                    name: String::new(),
                });
            }
        }
    }
    found
}

/// The module of this tree that a path names, or that contains the named item. A path through a re-export
/// leads to where the item is.
fn resolve(module: &[String], path: &[String], modules: &Modules) -> Option<Vec<String>> {
    let full = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            [&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()
        }
        // A child, or another crate.
        _ => [module, path].concat(),
    };
    let depth = (0..=full.len()).rfind(|depth| modules.contains_key(&full[..*depth]))?;
    let (found, rest) = full.split_at(depth);
    let exports = rest.first().and_then(|name| {
        // What a module inside of the file takes from it is no re-export.
        let mut named = modules[found]
            .iter()
            .filter(|named| named.path[0] != "super");
        named.find(|named| named.name == *name && found != module)
    });
    match exports {
        Some(export) => resolve(found, &export.path, modules),
        None => (!found.is_empty()).then(|| found.to_vec()),
    }
}

#[test]
fn a_tree_of_imports_is_read_whole() {
    let text = "use a::b;\npub(crate) use crate::{c as d,\n    e::{self, F}};\n// use x::y;\n";
    let used: Vec<_> = used(text)
        .into_iter()
        .map(|used| format!("{} {} {}", used.line, used.path.join("::"), used.name))
        .collect();
    let expected = [
        "1 a::b b",
        "2 crate::c d",
        "2 crate::e::self ",
        "2 crate::e::F F",
    ];
    assert_eq!(used, expected);
}

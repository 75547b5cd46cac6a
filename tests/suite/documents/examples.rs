//! What the examples show.

use std::process::Command;

use super::files;
use crate::support::example;
use crate::support::project::read;

/// The text between the fences at the top of an example.
fn shown(path: &str) -> Vec<String> {
    let text = read(path);
    let header = text.lines().map_while(|line| line.strip_prefix("//!"));
    let run = header.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let fenced = run.skip_while(|line| !line.starts_with("```text")).skip(1);
    fenced
        .take_while(|line| *line != "```")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_example_shows_a_run_with_its_output() {
    let mut examples = files("examples", "/main.rs");
    for entry in files("examples", ".rs") {
        if entry.matches('/').count() == 1 {
            let lines = read(&entry)
                .lines()
                .filter(|line| !line.starts_with("//!"))
                .count();
            assert!(lines <= 60, "{entry} has {lines} lines below its header");
            examples.push(entry);
        }
    }
    for path in examples {
        let shown = shown(&path);
        let commands = shown.iter().filter(|line| line.starts_with("$ ")).count();
        assert!(commands > 0, "{path} does not show how it is run");
        assert!(
            shown.len() > commands,
            "{path} does not show what it prints"
        );
    }
}

/// The examples that need no client and that end.
#[test]
fn what_an_example_shows_is_what_it_prints() {
    for name in ["custom_keys", "permits", "without_http"] {
        let shown = shown(&format!("examples/{name}.rs"));
        let run = Command::new(example(name)).output();
        let run =
            run.unwrap_or_else(|error| panic!("{name}: {error}; build it: cargo build --examples"));
        assert!(run.status.success(), "{name}: {run:?}");
        let printed = String::from_utf8(run.stdout).unwrap();
        let mut printed = printed.lines();
        for expected in shown.iter().filter(|line| !line.starts_with("$ ")) {
            let line = printed
                .next()
                .unwrap_or_else(|| panic!("{name} does not print {expected:?}"));
            // `…` stands for text that differs between runs.
            let (begin, end) = expected.split_once('…').unwrap_or((expected, ""));
            let same = line.starts_with(begin) && line.ends_with(end);
            assert!(
                same,
                "{name} prints {line:?}, its header shows {expected:?}"
            );
        }
        assert_eq!(
            printed.next(),
            None,
            "{name} prints more than its header shows"
        );
    }
}

/// `1`, `01` and `+1` are one number and three texts: an example whose key is a text must not read it as a number.
#[test]
fn no_example_reads_as_a_number_what_it_locks_as_a_text() {
    let mut pages = files("docs", ".md");
    pages.extend(files("examples", ".rs"));
    pages.extend(["README.md".to_owned(), "src/lib.rs".to_owned()]);
    for page in pages {
        for code in read(&page).split("```") {
            let reads_a_number = code.contains("Path<u") || code.contains("Path<i");
            let locks_a_text =
                code.contains("DistributedLockLayer::new(") && !code.contains("key::extract");
            assert!(!(reads_a_number && locks_a_text), "{page}: {code}");
        }
    }
}

//! The documents agree with the code and the repository.

mod examples;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::project::{read, root};

/// The pages at the root.
const AT_THE_ROOT: [&str; 5] = [
    "README",
    "ARCHITECTURE",
    "CHANGELOG",
    "CONTRIBUTING",
    "SECURITY",
];

/// The files below a directory with this ending, with their paths from the root. What a build has left is not among them.
fn files(directory: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(directory)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{directory}/{}", entry.file_name().to_str().unwrap());
        if entry.file_name() == "target" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path, ending));
        } else if path.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The targets of a page that are in the repository: those of each `[…](target)` and `[…]: target`.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let defined = page.lines().filter(|line| line.starts_with('['));
    let defined = defined.filter_map(|line| Some(line.split_once("]: ")?.1));
    let targets = targets.chain(defined);
    targets.filter(|target| !target.contains("://"))
}

/// Whether a link of `page`, which counts from `directory`, leads to no file, or to no heading of it.
fn is_dead(directory: &Path, page: &str, link: &str) -> bool {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.into(),
        path => directory.join(path),
    };
    if !root().join(&target).exists() {
        return true;
    }
    let text = match target.extension() {
        Some(end) if end == "md" && !fragment.is_empty() => read(target.to_str().unwrap()),
        _ => return false,
    };
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    !headings.any(|heading| anchor(heading) == fragment)
}

/// The anchor that GitHub and crates.io make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut pages: Vec<String> = AT_THE_ROOT.map(|name| format!("{name}.md")).into();
    for directory in ["benches", "crates", "docs", "lua", "tests"] {
        pages.extend(files(directory, ".md"));
    }
    let mut dead = Vec::new();
    let mut seen = 0;
    for page in &pages {
        let text = read(page);
        let directory = Path::new(page).parent().unwrap();
        for link in links(&text) {
            seen += 1;
            if is_dead(directory, page, link) {
                dead.push(format!("{page}: {link}"));
            }
        }
        let named = text.split("][").skip(1);
        for name in named.filter_map(|rest| rest.split(']').next()) {
            seen += 1;
            if !text.contains(&format!("\n[{name}]: ")) {
                dead.push(format!("{page}: [{name}] is not defined"));
            }
        }
    }
    assert!(seen > 80, "only {seen} links were found");
    assert!(dead.is_empty(), "{dead:#?}");
}

/// For readers of docs.rs and of crates.io, which have no other pages.
#[test]
fn every_link_to_a_page_of_the_repository_leads_somewhere() {
    let manifest = read("Cargo.toml");
    let (_, repository) = manifest.split_once("\nrepository = \"").unwrap();
    let (repository, _) = repository.split_once('"').unwrap();
    let pages = format!("{repository}/blob/main/");
    let mut from = files("src", ".rs");
    from.extend(
        [".rs", ".md", ".toml"]
            .iter()
            .flat_map(|ending| files("crates", ending)),
    );
    let mut dead = Vec::new();
    let mut seen = 0;
    for file in from {
        for link in read(&file).split(&pages).skip(1) {
            seen += 1;
            let end = link.find(|c: char| c.is_whitespace() || matches!(c, ')' | '"'));
            let link = &link[..end.unwrap_or(link.len())];
            if is_dead(Path::new(""), &file, link) {
                dead.push(format!("{file}: {link}"));
            }
        }
    }
    assert!(seen > 5, "only {seen} links were found");
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn the_readme_is_short_and_names_every_example_and_feature() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(
        lines <= 160,
        "README.md has {lines} lines: a detail belongs to the guide"
    );
    let manifest = read("Cargo.toml");
    let library = read("src/lib.rs");
    for name in manifest
        .split("[[example]]\nname = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        assert!(
            readme.contains(&format!("| [`{name}`]")),
            "README.md does not list the example {name}"
        );
    }
    let (_, features) = manifest.split_once("\n[features]\n").unwrap();
    let (features, _) = features.split_once("\n[").unwrap();
    for feature in features.lines().filter_map(|line| line.split_once(" = ")) {
        let row = format!("| `{}` |", feature.0);
        if feature.0 != "default" {
            assert!(
                readme.contains(&row),
                "README.md does not list the feature {}",
                feature.0
            );
            assert!(
                library.contains(&row),
                "src/lib.rs does not list the feature {}",
                feature.0
            );
        }
    }
}

#[test]
fn every_crate_is_published_and_says_what_it_is() {
    let published = read("scripts/crates");
    let (_, published) = published.split_once("<<'LIST'\n").unwrap();
    let published: BTreeSet<_> = published.lines().filter(|line| *line != "LIST").collect();
    let readme = read("README.md");
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let mut crates = BTreeSet::from(["tower-distributed-lock".to_owned()]);
    for folder in folders {
        let folder = folder.unwrap().file_name().into_string().unwrap();
        let manifest = read(&format!("crates/{folder}/Cargo.toml"));
        let name = manifest.split("name = \"").nth(1).unwrap();
        let name = name.split('"').next().unwrap();
        let row = format!("| [`{name}`](crates/{folder}) |");
        assert!(readme.contains(&row), "README.md does not list {name}");
        for field in [
            "version.workspace = true",
            "description = ",
            "keywords = ",
            "include = ",
        ] {
            assert!(
                manifest.contains(field),
                "{folder}/Cargo.toml has no {field}"
            );
        }
        let lines = read(&format!("crates/{folder}/README.md")).lines().count();
        assert!(lines <= 60, "crates/{folder}/README.md has {lines} lines");
        crates.insert(name.to_owned());
    }
    let crates: BTreeSet<_> = crates.iter().map(String::as_str).collect();
    assert_eq!(crates, published, "left: crates; right: scripts/crates");
}

#[test]
fn the_architecture_is_short() {
    let lines = read("ARCHITECTURE.md").lines().count();
    assert!(lines <= 130, "ARCHITECTURE.md has {lines} lines");
}

/// A caller may drop a future at any `.await`: its docs must say what happens then.
#[test]
fn every_public_async_function_says_what_its_cancellation_does() {
    let mut silent = BTreeSet::new();
    let mut seen = 0;
    // The cases of the exported suite are tests, which no user calls.
    let cases = |path: &String| path.starts_with("crates/testing/src/conformance/");
    let all = files("src", ".rs")
        .into_iter()
        .chain(files("crates", ".rs"));
    for path in all.filter(|path| !cases(path)) {
        let text = read(&path);
        let mut docs = String::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if let Some(doc) = line.strip_prefix("///") {
                docs.push_str(&doc.to_lowercase());
            } else if !line.starts_with("#[") {
                if line.starts_with("pub async fn ") {
                    seen += 1;
                    if !docs.contains("cancel") {
                        silent.insert(format!("{path}:{}: {line}", number + 1));
                    }
                }
                docs.clear();
            }
        }
    }
    assert!(seen > 10, "only {seen} functions were found");
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn every_page_of_the_guide_begins_with_what_its_reader_wants() {
    let mut pages = files("docs/guide", ".md");
    assert!(pages.len() > 10, "{pages:?}");
    pages.extend(["docs/lockctl.md", "docs/protocol.md"].map(str::to_owned));
    for page in pages {
        let text = read(&page);
        let mut lines = text.lines();
        let title = lines.next().is_some_and(|line| line.starts_with("# "));
        let wants = lines.nth(1).is_some_and(|line| line.starts_with("*You "));
        assert!(
            title && wants,
            "{page}: a title, then what the reader wants"
        );
    }
}

/// The code of a page is tested by `src/guide.rs`, and all of it is shown.
#[test]
fn the_code_of_every_page_of_the_guide_is_tested() {
    let tested = read("src/guide.rs");
    let tested: BTreeSet<_> = tested.split_whitespace().collect();
    for page in files("docs/guide", ".md") {
        let name = Path::new(&page).file_stem().unwrap().to_str().unwrap();
        assert!(tested.contains(name), "src/guide.rs does not name {page}");
        let text = read(&page);
        let hidden = text.lines().skip(1).find(|line| line.starts_with("# "));
        assert_eq!(hidden, None, "{page} shows a line that is to be hidden");
    }
}

/// `.ci/run` checks that the documentation has them.
#[test]
fn every_item_that_a_page_of_the_guide_names_leads_to_its_documentation() {
    const DOCS: &str = "https://docs.rs/tower-distributed-lock/latest/tower_distributed_lock/";
    let mut pages = files("docs/guide", ".md");
    pages.push("docs/lockctl.md".to_owned());
    let mut seen = 0;
    for page in pages {
        let text = read(&page);
        let links = text.split("[`").skip(1);
        let links = links.filter_map(|link| link.split_once("`]"));
        for (item, _) in links.filter(|(_, rest)| !rest.starts_with(['[', '(', ':'])) {
            seen += 1;
            let defined = text.split_once(&format!("\n[`{item}`]: {DOCS}"));
            let target = defined.and_then(|(_, target)| target.lines().next());
            let target = target.unwrap_or_else(|| panic!("{page} does not say where {item} is"));
            let path = item.trim_end_matches("()").split("::");
            assert!(
                path.clone().all(|name| target.contains(name)),
                "{page}: {target}"
            );
        }
    }
    assert!(seen > 50, "only {seen} items were found");
}

#[test]
fn every_section_of_the_protocol_that_the_code_cites_is_documented() {
    let page = read("docs/protocol.md");
    let sections: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ")?.split(' ').next())
        .collect();
    let mut cited = 0;
    for (directory, ending) in [("src", ".rs"), ("lua", ".lua"), ("tests", ".rs")] {
        for path in files(directory, ending) {
            for rest in read(&path).split("PROTOCOL ").skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
                let section = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
                if !section.is_empty() {
                    cited += 1;
                    let known = sections.contains(section);
                    assert!(known, "{path}: docs/protocol.md has no section {section}");
                }
            }
        }
    }
    assert!(cited > 10, "only {cited} citations were found");
    let names = read("src/store/redis/protocol/names.rs");
    for name in names.split("\"tower_lock_").skip(1) {
        let name = format!("tower_lock_{}", name.split(['"', ':']).next().unwrap());
        assert!(page.contains(&name), "docs/protocol.md misses {name}");
    }
}

/// Words that hide who does what, and metaphors. A sentence without them names the thing.
const MANNERED: &[&str] = &[
    "anybody",
    "courtesy",
    "errand",
    "errands",
    "everybody",
    "heard of",
    "its lease will",
    "is told",
    "are told",
    "be had",
    "be told",
    "was told",
    "nobody",
    "of no account",
    "of no use",
    "onlooker",
    "onlookers",
    "somebody",
    "whoever",
];

/// Whether a text has these words as words of their own.
fn says(text: &str, words: &str) -> bool {
    let ends = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '-');
    text.match_indices(words).any(|(at, found)| {
        ends(text[..at].chars().next_back()) && ends(text[at + found.len()..].chars().next())
    })
}

#[test]
fn texts_are_in_plain_english() {
    let here = "tests/suite/documents.rs";
    let mut pages: Vec<String> = AT_THE_ROOT.map(|name| format!("{name}.md")).into();
    for (directory, endings) in [
        ("src", &[".rs", ".js", ".html"][..]),
        ("lua", &[".lua"]),
        ("docs", &[".md", ".rs"]),
        ("crates", &[".rs", ".sql", ".md", ".js", ".html"]),
        ("ops", &[".yml", ".json"]),
        ("scripts", &[""]),
        ("tests", &[".rs", ".java"]),
        ("examples", &[".rs", ".sql"]),
        ("benches", &[".rs", ".md"]),
    ] {
        pages.extend(endings.iter().flat_map(|ending| files(directory, ending)));
    }
    assert!(pages.len() > 500, "only {} files were found", pages.len());
    let mut found = Vec::new();
    for page in pages.iter().filter(|page| *page != here) {
        for (number, line) in read(page).lines().enumerate() {
            let line = line.to_lowercase();
            let said = MANNERED.iter().filter(|words| says(&line, words));
            found.extend(said.map(|words| format!("{page}:{}: {words}", number + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(says("it is told, once", "is told") && !says("an errand-boy", "errand"));
}

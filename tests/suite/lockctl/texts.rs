//! Help texts, and commands that need no server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use tower_distributed_lock::RedisStore;

use super::{done, lockctl};
use crate::support::binary;
use crate::support::project::read;

async fn said(arguments: &[&str]) -> String {
    let done = done(lockctl("", arguments)).await;
    assert_eq!((done.code, &*done.err), (0, ""), "{arguments:?}");
    done.out
}

/// The codes in a text, where they begin a line or a row of a table.
fn codes(text: &str) -> Vec<u8> {
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches(['|', ' ', '`']));
    let codes = lines.filter_map(|line| {
        let digits: String = line.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    codes.collect()
}

#[tokio::test]
async fn the_help_texts_and_the_docs_have_the_same_exit_codes() {
    let expected = [0, 1, 64, 71, 74, 80, 81, 82, 83, 84];
    for arguments in [&["--help"][..], &["run", "--help"]] {
        let help = said(arguments).await;
        let (_, table) = help.split_once("Exit codes:").expect("a table");
        assert_eq!(codes(table), expected, "{help}");
        assert!(help.contains("Examples:"), "{help}");
    }
    let docs = read("docs/lockctl.md");
    let (_, rest) = docs.split_once("## Exit codes").expect("a section");
    let section = rest.split("\n## ").next().expect("it ends");
    assert_eq!(codes(section), expected, "{section}");
}

#[tokio::test]
async fn the_help_text_names_the_environment_variables() {
    let help = said(&["run", "--help"]).await;
    for variable in [
        "REDIS_URL",
        "REDIS_USER",
        "REDIS_PASSWORD_FILE",
        "LOCKCTL_NAMESPACE",
        "LOCKCTL_TLS_CA",
        "LOCKCTL_TLS_CERT",
        "LOCKCTL_TLS_KEY",
    ] {
        assert!(help.contains(&format!("[env: {variable}]")), "{help}");
    }
}

#[tokio::test]
async fn a_wrong_command_line_has_the_code_of_sysexits() {
    for arguments in [
        &[][..],
        &["run"],
        &["run", "--key", "k"],
        &["run", "--idempotency-key", "k", "--mode", "fair", "true"],
        &["run", "--idempotency-key", "k", "--permits", "2", "true"],
        &["--no-such-option"],
    ] {
        let done = done(lockctl("redis://localhost:1", arguments)).await;
        assert_eq!((done.code, &*done.out), (64, ""), "{arguments:?}");
    }
}

/// As from a variable that is not set: all jobs with this mistake would share one lock, and one record.
#[tokio::test]
async fn a_name_without_characters_is_refused() {
    for option in ["--key", "--idempotency-key"] {
        let run = ["run", option, "", "--", "true"];
        let done = done(lockctl("redis://localhost", &run)).await;
        assert_eq!((done.code, &*done.out), (64, ""), "{done:?}");
        assert!(done.err.contains(option), "{done:?}");
    }
}

#[tokio::test]
async fn rights_are_those_of_the_library() {
    let rules = RedisStore::acl_rules(["order:", "cart:"]);
    let rules = rules.admin().announce().cluster();
    let arguments = [
        "--cluster",
        "acl",
        "--admin",
        "--announce",
        "order:",
        "cart:",
    ];
    assert_eq!(said(&arguments).await, format!("{rules}\n"));
    let json = said(&[&arguments[..], &["--json"]].concat()).await;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let listed: Vec<_> = rules.iter().map(Value::from).collect();
    assert_eq!(json["rules"], Value::from(listed));
}

/// A shell and xargs have their own meanings of quotes and backslashes.
#[tokio::test]
async fn the_example_passes_rights_on_as_they_are() {
    let prefix = r"it's[1]*:";
    let help = said(&["--help"]).await;
    let docs = read("docs/lockctl.md");
    let [example, documented] = [&help, &docs].map(|text| {
        let mut lines = text.lines().map(str::trim);
        lines.find(|line| line.contains("ACL SETUSER locks"))
    });
    assert_eq!(example, documented);
    let line = example.expect("an example");
    let line = line
        .replace("lockctl", "\"$0\"")
        .replace("order:", "\"$1\"");
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("redis-cli");
    fs::write(&program, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n").expect("it is written");
    let executable = Permissions::from_mode(0o755);
    fs::set_permissions(&program, executable).expect("it is there");
    let path = std::env::var("PATH").expect("a path");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &line])
        .arg(binary("lockctl"))
        .arg(prefix)
        .env("PATH", format!("{}:{path}", folder.path().display()));
    let given = done(shell).await;
    let rules = RedisStore::acl_rules([prefix]).admin();
    let words = ["ACL", "SETUSER", "locks", "on", ">secret"].map(str::to_owned);
    let expected: Vec<_> = words.into_iter().chain(rules.iter()).collect();
    let given: Vec<_> = given.out.lines().collect();
    assert_eq!(given, expected);
}

#[tokio::test]
async fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = said(&["completions", shell]).await;
        assert!(script.contains("on-lost"), "{shell}");
    }
}

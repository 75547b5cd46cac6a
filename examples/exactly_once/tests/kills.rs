//! Processes that die, or sleep too long, at every step.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

fn process(words: &[&str], database: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exactly_once"));
    command.arg(words[0]).arg(database).args(&words[1..]);
    command
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

#[test]
fn the_demonstration_prints_what_its_header_shows() {
    let header = include_str!("../src/main.rs").lines();
    let header = header.map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let shown = header.skip_while(|line| !line.starts_with("$ ")).skip(1);
    let shown: Vec<_> = shown.take_while(|line| *line != "```").collect();
    let printed = output(&mut Command::new(env!("CARGO_BIN_EXE_exactly_once")));
    assert_eq!(printed.lines().collect::<Vec<_>>(), shown);
}

const PAYING: [&str; 7] = [
    "sent",
    "claimed",
    "begun",
    "key written",
    "row written",
    "committed",
    "recorded",
];
const SETTING: [&str; 4] = ["asked", "granted", "set", "released"];

/// Kills a payment at a step, and repeats it twice.
fn paid_after_a_kill(step: &str, without_key: bool) -> [String; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("bank.db");
    let pay = || {
        let mut pay = process(&["pay", "order-42"], &database);
        if without_key {
            pay.env("WITHOUT_KEY", "1");
        }
        pay
    };
    let killed = pay().env("KILL_AT", step).output().expect("it runs");
    assert!(!killed.status.success(), "{step}: it was killed");
    [output(&mut pay()), output(&mut pay())]
}

#[test]
fn a_payment_that_is_killed_at_any_step_is_taken_once() {
    for step in PAYING {
        let answers = paid_after_a_kill(step, false);
        assert_eq!(answers, ["paid: balance 70", "paid: balance 70"], "{step}");
    }
}

/// The test above finds what it looks for.
#[test]
fn without_the_key_in_the_transaction_a_payment_is_taken_twice() {
    for step in ["committed", "recorded"] {
        let [repeat, _] = paid_after_a_kill(step, true);
        assert_eq!(repeat, "paid: balance 40", "{step}");
    }
}

#[test]
fn a_holder_that_dies_at_any_step_leaves_the_row_to_the_next_one() {
    for step in SETTING {
        let folder = tempfile::tempdir().expect("a folder");
        let database = folder.path().join("bank.db");
        let killed = process(&["set", "1"], &database)
            .env("KILL_AT", step)
            .output();
        assert!(!killed.expect("it runs").status.success(), "{step}");
        assert_eq!(
            output(&mut process(&["set", "2"], &database)),
            "true",
            "{step}"
        );
        assert_eq!(
            output(&mut process(&["pay", "k"], &database)),
            "paid: balance -28"
        );
    }
}

/// Pauses a holder at a step, past the write of the next one. Returns what it says then, and the balance less 30.
fn set_after_a_pause(step: &str, without_token: bool) -> [String; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let (database, resume) = (folder.path().join("bank.db"), folder.path().join("resume"));
    let mut paused = process(&["set", "1"], &database);
    if without_token {
        paused.env("WITHOUT_TOKEN", "1");
    }
    let mut paused = paused
        .env("PAUSE_AT", step)
        .env("RESUME", &resume)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut said = BufReader::new(paused.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it pauses");
    assert_eq!(line.trim(), "paused");
    let next = output(&mut process(&["set", "2"], &database));
    assert_eq!(next, "true", "{step}");
    std::fs::write(&resume, "").expect("a file");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("it ends");
    assert!(paused.wait().expect("it ends").success());
    let balance = output(&mut process(&["pay", "k"], &database));
    [rest.trim().to_owned(), balance]
}

/// The paused process holds a lock that its store has given away: each process has a store of its own.
#[test]
fn a_holder_that_is_paused_at_any_step_never_overwrites_the_next_one() {
    // Before its grant it holds nothing: it is the next holder, with a token that is larger.
    for step in &SETTING[1..] {
        let [said, balance] = set_after_a_pause(step, false);
        // It wrote before the pause, or not at all.
        assert_eq!(said, (*step != "granted").to_string(), "{step}");
        assert_eq!(balance, "paid: balance -28", "{step}");
    }
}

/// The test above finds what it looks for.
#[test]
fn without_the_token_in_the_update_a_paused_holder_overwrites_the_next_one() {
    let [said, balance] = set_after_a_pause("granted", true);
    assert_eq!(
        [said.as_str(), balance.as_str()],
        ["true", "paid: balance -29"]
    );
}

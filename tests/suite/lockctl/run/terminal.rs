//! A command at a terminal.

use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;

use nix::sys::signal::{Signal, kill};

use super::super::{SOON, without_settings};
use crate::support::{RedisServer, eventually};

/// The second is as `ssh` does that asks for a password while another command writes to its standard input.
#[tokio::test]
async fn a_command_reads_from_the_terminal_of_its_user_wherever_its_input_comes_from() {
    for (before, from) in [("", ""), ("echo elsewhere | ", " < /dev/tty")] {
        let script = format!("echo ready; read word{from}; echo the word is $word");
        let run = format!("{before}{LOCKCTL} run --key k -- sh -c '{script}'");
        let shown = at_a_terminal(&run, |_, input| {
            input.write_all(b"sesame\n").expect("it reads");
        });
        let shown = shown.await;
        assert!(shown.contains("the word is sesame"), "{shown}");
    }
}

/// A lockctl that is stopped alone does not end the command when the lock is lost.
#[tokio::test]
async fn a_command_is_suspended_with_lockctl_whatever_its_input_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let [id, go] = ["id", "go"].map(|name| folder.path().join(name).display().to_string());
    // It starts no process: until a process that is being started goes on, its parent does not count as stopped.
    let script = format!("echo $$ > {id}; echo ready; read word < {go}; exit 3");
    // A shell that controls jobs goes on when lockctl is stopped.
    let run = format!(
        "mkfifo {go}; set -m; {LOCKCTL} run --key k -- sh -c '{script}' < /dev/null; \
         until grep -q '^State:.T' /proc/$(cat {id})/status; do sleep 0.02; done; \
         exec 3<> {go}; echo >&3; fg; [ $? = 3 ]"
    );
    at_a_terminal(&run, |line, input| {
        // The shell shows the whole line when the job is stopped.
        if line == "ready" {
            input.write_all(b"\x1a").expect("it reads");
        }
    })
    .await;
}

/// A terminal sends an interrupt to lockctl and to the command, so lockctl does not repeat it. It passes the other signals on.
#[tokio::test]
async fn at_a_terminal_an_interrupt_is_not_passed_on() {
    let script = "trap \"echo got INT\" INT; trap \"echo got TERM; exit 0\" TERM; echo ready $PPID; \
        while :; do sleep 0.02; done";
    let run = format!("{LOCKCTL} run --key k -- sh -c '{script}'");
    let shown = at_a_terminal(&run, |line, _| {
        let lockctl = line.split_whitespace().last().expect("its id");
        let lockctl = nix::unistd::Pid::from_raw(lockctl.parse().expect("a number"));
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            kill(lockctl, signal).expect("it runs");
        }
    });
    let shown = shown.await;
    assert!(shown.contains("got TERM"), "{shown}");
    assert!(!shown.contains("got INT"), "{shown}");
}

/// As when the connection of `ssh -t` breaks: lockctl leads the session, and is the only process that is signalled.
#[tokio::test]
async fn a_terminal_that_hangs_up_is_passed_on() {
    let redis = RedisServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let seen = folder.path().join("seen");
    let script = format!(
        "trap \"> {}; exit\" HUP; echo ready; while :; do sleep 0.02; done",
        seen.display()
    );
    let binary = crate::support::binary("lockctl");
    let run = "run --key k --lease 2s -- sh -c";
    let line = format!("exec {} {run} '{script}'", binary.display());
    let mut terminal = std::process::Command::new("script");
    without_settings(&mut terminal)
        .args(["-qec", &line, "/dev/null"])
        .env("REDIS_URL", redis.url());
    let (mut terminal, _input, output) =
        crate::support::Process::spawn_piped(&mut terminal).expect("bsdutils has `script`");
    let ready = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.any(|line| line.contains("ready"))
    });
    assert!(ready.await.expect("no panic"));
    terminal.kill9();
    eventually("the command has got HUP", SOON, async || seen.exists()).await;
}

/// What a line for [`at_a_terminal`] calls lockctl.
const LOCKCTL: &str = "\"$LOCKCTL\"";

/// Runs a line of shell at a terminal, and does this when a line with `ready` is written. Returns what the terminal shows.
async fn at_a_terminal(
    line: &str,
    when_ready: impl Fn(&str, &mut ChildStdin) + Send + 'static,
) -> String {
    let redis = RedisServer::start().await;
    let mut terminal = std::process::Command::new("script");
    without_settings(&mut terminal)
        .args(["-qec", line, "/dev/null"])
        .env("LOCKCTL", crate::support::binary("lockctl"))
        .env("REDIS_URL", redis.url());
    let (mut terminal, mut input, output) =
        crate::support::Process::spawn_piped(&mut terminal).expect("bsdutils has `script`");
    let shown = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(output).lines();
        let mut text = String::new();
        while let Some(Ok(line)) = lines.next() {
            if line.contains("ready") {
                when_ready(&line, &mut input);
            }
            text += &line;
        }
        text
    });
    assert!(terminal.end().await.success());
    shown.await.expect("it is text")
}

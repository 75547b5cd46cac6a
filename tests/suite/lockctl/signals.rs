//! Signals to `lockctl`, and its own death.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Gate, SOON, after, client, done, pid, ready, running, until_gone};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn signals_are_passed_on_and_the_command_decides() {
    let redis = RedisServer::start().await;
    let signals = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    for signal in signals {
        let name = signal.as_str().trim_start_matches("SIG");
        let script = format!(
            "trap 'echo got {name}; exit 3' {name}; echo ready; while :; do sleep 0.02; done"
        );
        let mut process = ready(running(&redis, "k", &[], &script)).await;
        process.signal(signal);
        let status = process.end().await;
        assert_eq!(status.code(), Some(3), "{signal}: {}", process.output());
        // The shell may report how its `sleep` ended.
        let output = process.output();
        assert_eq!(output.matches("got").count(), 1, "{signal}: {output}");
    }
}

async fn assert_free_within(wait: Duration, redis: &RedisServer) {
    let request = client(redis).await.lock("k").wait(wait);
    let guard = request.await.expect("it is free");
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn a_command_that_a_signal_ends_has_its_code_and_its_lock_is_free() {
    let redis = RedisServer::start().await;
    let mut process = ready(running(&redis, "k", &[], "echo ready; exec sleep 60")).await;
    process.signal(Signal::SIGINT);
    assert_eq!(process.end().await.code(), Some(130));
    assert_free_within(Duration::ZERO, &redis).await;
}

#[tokio::test]
async fn a_signal_reaches_what_the_command_has_started() {
    let redis = RedisServer::start().await;
    // The shell waits for its child, and would handle the signal only afterwards.
    let script = "trap 'exit 4' TERM; sh -c 'echo pid $$; echo ready; exec sleep 60'";
    let mut process = ready(running(&redis, "k", &[], script)).await;
    let grandchild = pid(&process);
    process.terminate();
    assert_eq!(process.end().await.code(), Some(4));
    until_gone(grandchild).await;
}

#[tokio::test]
async fn a_signal_that_is_ignored_stays_ignored() {
    let redis = RedisServer::start().await;
    let inner = running(&redis, "k", &[], "echo ready; while :; do sleep 0.02; done");
    let mut process = ready(after("trap '' HUP", &inner)).await;
    process.signal(Signal::SIGHUP);
    process.signal(Signal::SIGTERM);
    // Signals are forwarded in the order of their numbers, so HUP would have ended it first.
    assert_eq!(process.end().await.code(), Some(143));
}

/// A process that ignores CHLD gets no exit codes of its children.
#[tokio::test]
async fn the_exit_code_counts_also_where_the_caller_ignores_the_end_of_children() {
    let redis = RedisServer::start().await;
    let inner = running(&redis, "k", &[], "exit 7");
    // `trap` of a shell does not do it.
    let ignoring = "exec env --ignore-signal=CHLD \"$0\" \"$@\"";
    let done = done(after(ignoring, &inner)).await;
    assert_eq!((done.code, &*done.err), (7, ""));
}

#[tokio::test]
async fn the_command_is_signalled_when_lockctl_is_killed() {
    let redis = RedisServer::start().await;
    let script =
        "trap 'echo got TERM; exit' TERM; echo pid $$; echo ready; while :; do sleep 0.02; done";
    let mut process = ready(running(&redis, "k", &["--lease", "1s"], script)).await;
    let command = pid(&process);
    process.kill9();
    until_gone(command).await;
    assert!(
        process.output().contains("got TERM"),
        "{}",
        process.output()
    );
    // Its lease is over in a moment.
    assert_free_within(SOON, &redis).await;

    let ignoring = "trap '' TERM; echo pid $$; echo ready; while :; do sleep 0.02; done";
    let options = ["--lease", "1s", "--on-lost", "kill"];
    let mut process = ready(running(&redis, "k", &options, ignoring)).await;
    let command = pid(&process);
    process.kill9();
    until_gone(command).await;
}

#[tokio::test]
async fn the_command_goes_on_without_lockctl_if_losses_are_ignored() {
    let redis = RedisServer::start().await;
    let gate = Gate::new();
    let script = gate.before("echo went on");
    let mut process = ready(running(&redis, "k", &["--on-lost", "ignore"], &script)).await;
    process.kill9();
    gate.open();
    eventually("the command goes on", SOON, async || {
        process.output().contains("went on")
    })
    .await;
}

//! Locks that are lost while a command runs, and stores that do not answer.

use super::{Gate, SOON, after, break_lock, done, pid, ready, running, until_gone, until_written};
use crate::support::{RedisServer, eventually};

/// A command that ends on TERM.
const TIDY: &str =
    "trap 'echo tidied up; exit 0' TERM; echo pid $$; echo ready; while :; do sleep 0.02; done";

/// A command that ends on KILL only, like its child.
const STUBBORN: &str =
    "trap '' TERM; (while :; do sleep 0.02; done) & echo pid $!; echo ready; wait";

const LEASE: [&str; 2] = ["--lease", "2s"];

#[tokio::test]
async fn a_command_whose_lock_was_taken_away_is_ended_and_that_is_no_success() {
    let redis = RedisServer::start().await;
    let mut process = ready(running(&redis, "k", &LEASE, TIDY)).await;
    break_lock(&redis, "k").await;
    assert_eq!(process.end().await.code(), Some(82));
    let output = process.output();
    assert!(
        output.contains("the lock on \"k\" is lost: ending the command"),
        "{output}"
    );
    assert!(output.contains("tidied up"), "{output}");
}

#[tokio::test]
async fn a_command_that_does_not_end_is_killed_with_what_it_has_started() {
    let redis = RedisServer::start().await;
    for options in [["--grace", "100ms"], ["--on-lost", "kill"]] {
        let options = [LEASE, options].concat();
        let mut process = ready(running(&redis, "k", &options, STUBBORN)).await;
        let started = pid(&process);
        break_lock(&redis, "k").await;
        assert_eq!(process.end().await.code(), Some(82));
        until_gone(started).await;
    }
}

#[tokio::test]
async fn a_command_is_ended_also_where_messages_cannot_be_written() {
    let redis = RedisServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    // A pipe that is never read: a further write would wait for ever.
    let full_pipe = format!(
        "mkfifo {0}; exec 2<> {0}; dd if=/dev/zero of={0} bs=4096 oflag=nonblock 2> /dev/null",
        folder.path().join("pipe").display()
    );
    let options = [&LEASE[..], &["--grace", "100ms"]].concat();
    for errors in ["exec 2> /dev/full", &full_pipe] {
        let inner = running(&redis, "k", &options, STUBBORN);
        let mut process = ready(after(errors, &inner)).await;
        let started = pid(&process);
        break_lock(&redis, "k").await;
        until_gone(started).await;
        assert_eq!(process.end().await.code(), Some(82), "{errors}");
    }
}

#[tokio::test]
async fn a_process_that_outlives_its_command_is_killed_as_well() {
    let redis = RedisServer::start().await;
    let script =
        "(trap '' TERM; while :; do sleep 0.02; done) & echo pid $!; echo ready; exec sleep 60";
    let options = [&LEASE[..], &["--grace", "200ms"]].concat();
    let mut process = ready(running(&redis, "k", &options, script)).await;
    let left = pid(&process);
    break_lock(&redis, "k").await;
    assert_eq!(process.end().await.code(), Some(82));
    until_gone(left).await;
}

#[tokio::test]
async fn a_command_goes_on_without_its_lock_if_losses_are_ignored() {
    let redis = RedisServer::start().await;
    let gate = Gate::new();
    let script = gate.before("exit 5");
    let options = [&LEASE[..], &["--on-lost", "ignore"]].concat();
    let mut process = ready(running(&redis, "k", &options, &script)).await;
    break_lock(&redis, "k").await;
    until_written(&mut process, "is lost: the command goes on").await;
    gate.open();
    assert_eq!(process.end().await.code(), Some(5));
}

#[tokio::test]
async fn a_command_has_ended_before_the_lease_when_the_store_is_silent() {
    let mut redis = RedisServer::start().await;
    let options = ["--lease", "2s", "--grace", "500ms"];
    let mut process = ready(running(&redis, "k", &options, STUBBORN)).await;
    let started = pid(&process);
    redis.pause();
    // It ends while the store is still silent, so lockctl has no answer that the lock is gone.
    until_gone(started).await;
    let output = process.output();
    assert!(output.contains("could not be renewed in time"), "{output}");
    redis.resume();
    assert_eq!(process.end().await.code(), Some(82));
}

#[tokio::test]
async fn a_command_is_not_started_while_the_store_is_down() {
    let mut redis = RedisServer::start().await;
    redis.kill9();
    let done = done(running(&redis, "k", &[], "echo it ran")).await;
    assert_eq!((done.code, &*done.out), (81, ""), "{done:?}");
    assert!(done.err.contains("cannot be reached"), "{done:?}");
}

#[tokio::test]
async fn a_store_that_goes_away_later_leaves_the_end_unconfirmed() {
    let mut redis = RedisServer::start().await;
    let gate = Gate::new();
    let script = gate.before("true");
    let mut process = ready(running(&redis, "k", &[], &script)).await;
    redis.kill9();
    gate.open();
    assert_eq!(process.end().await.code(), Some(83));
    let output = process.output();
    assert!(output.contains("exit status: 0"), "{output}");
}

#[tokio::test]
async fn a_lock_that_was_lost_unseen_is_no_success() {
    let redis = RedisServer::start().await;
    let gate = Gate::new();
    let script = gate.before("true");
    // The next renewal is ten seconds away.
    let mut process = ready(running(&redis, "k", &[], &script)).await;
    break_lock(&redis, "k").await;
    gate.open();
    assert_eq!(process.end().await.code(), Some(82));
    eventually("nothing is held", SOON, async || {
        !redis.dump().await.contains_key("k")
    })
    .await;
}

#[tokio::test]
async fn a_grace_that_would_end_healthy_commands_is_refused() {
    let redis = RedisServer::start().await;
    for options in [
        &["--lease", "1s", "--grace", "600ms"][..],
        &["--on-lost", "kill", "--grace", "1s"],
        &["--lease", "1ms"],
        &["--lease", "10"],
    ] {
        let done = done(running(&redis, "k", options, "echo it ran")).await;
        assert_eq!((done.code, &*done.out), (64, ""), "{options:?}: {done:?}");
    }
    // A healthy command outlives many renewals with the longest grace.
    let options = ["--lease", "6s", "--grace", "3s"];
    let done = done(running(&redis, "k", &options, "sleep 5")).await;
    assert_eq!(done.code, 0, "{done:?}");
}

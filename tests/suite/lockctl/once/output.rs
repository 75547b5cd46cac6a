//! The output of a command that runs once.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use super::super::{SOON, after, client, done, without_settings};
use super::Runs;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn long_output_is_passed_on_whole_and_replayed_in_part() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "head -c 200000 /dev/zero | tr '\\0' x";
    let first = done(runs.once(&redis, "job", &[], script)).await;
    assert_eq!((first.code, first.out.len()), (0, 200_000));
    let repeat = done(runs.once(&redis, "job", &[], script)).await;
    assert_eq!((repeat.code, repeat.out.len()), (0, 64 * 1024));
    assert!(repeat.err.contains("wrote more"), "{}", repeat.err);
}

#[tokio::test]
async fn what_is_left_running_with_the_output_open_does_not_delay_the_end() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let first = done(runs.once(&redis, "job", &[], "echo said; sleep 100 & echo pid $!")).await;
    let said = first.out.split("pid ").next();
    assert_eq!((first.code, said), (0, Some("said\n")), "{first:?}");
    let left = first.out.trim().rsplit(' ').next().expect("an id").parse();
    let left = nix::unistd::Pid::from_raw(left.expect("a number"));
    nix::sys::signal::kill(left, nix::sys::signal::Signal::SIGKILL).expect("it runs still");
    let repeat = done(runs.once(&redis, "job", &[], "")).await;
    assert_eq!(repeat.out, first.out);
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_a_reader_that_takes_nothing() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    // More than the pipe to the reader contains, and less than both pipes.
    let script = "head -c 100000 /dev/zero | tr '\\0' x; echo $$ > ended; exit 3";
    let options = ["--key", "lock:db"];
    let mut command = runs.once(&redis, "job", &options, script);
    let (mut stuck, _stdin, _unread) =
        crate::support::Process::spawn_piped(&mut command).expect("lockctl is built");
    eventually("lockctl sees the end of the command", SOON, async || {
        let id = fs::read_to_string(runs.0.path().join("ended")).unwrap_or_default();
        !id.is_empty() && !Path::new("/proc").join(id.trim()).exists()
    })
    .await;
    stuck.terminate();
    assert_eq!(stuck.end().await.code(), Some(3), "{}", stuck.output());
    let repeat = done(runs.once(&redis, "job", &["--wait", "0"], script)).await;
    assert_eq!((repeat.code, repeat.out.len()), (3, 64 * 1024));
    let guard = client(&redis).await.lock("lock:db").wait(Duration::ZERO);
    let guard = guard.await.expect("it is free");
    guard.release().await.expect("it was held");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_signal_ends_a_replay_that_nothing_reads() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "head -c 65536 /dev/zero; head -c 65536 /dev/zero >&2; exit 3";
    let run = runs.once(&redis, "job", &[], script);
    let first = done(run).await;
    assert_eq!((first.code, first.err.len()), (3, 64 * 1024));
    // Both streams go to one pipe, which does not contain so much.
    let mut repeat = after("exec 2>&1", &runs.once(&redis, "job", &[], script));
    let (mut repeat, _stdin, mut unread) =
        crate::support::Process::spawn_piped(&mut repeat).expect("lockctl is built");
    let begun = tokio::task::spawn_blocking(move || {
        unread.read_exact(&mut [0]).expect("it has begun");
        unread
    });
    let _unread = begun.await.expect("no panic");
    repeat.terminate();
    assert_eq!(repeat.end().await.code(), Some(143));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_slow_reader_gets_the_whole_output() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    // So much fits into the pipes that the command ends while the reader sleeps.
    let run = runs.once(&redis, "job", &[], "head -c 130000 /dev/zero");
    let mut shell = std::process::Command::new("sh");
    without_settings(&mut shell)
        .args(["-c", "\"$0\" \"$@\" | (sleep 3; wc -c)"])
        .arg(run.get_program())
        .args(run.get_args())
        .env("REDIS_URL", redis.url())
        .current_dir(runs.0.path());
    let done = done(shell).await;
    assert_eq!(done.out.trim(), "130000", "{done:?}");
}

//! A command under a lock: its environment, and its exit code.

mod terminal;

use std::fs;
use std::time::{Duration, Instant};

use tower_distributed_lock::{Lease, LockMode};

use super::{SOON, client, done, lockctl, ready, running};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn the_command_has_the_key_and_a_token_that_rises_and_its_exit_code_counts() {
    let redis = RedisServer::start().await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let script = "echo \"$LOCK_KEY $LOCK_FENCING_TOKEN\"; exit 7";
        let done = done(running(&redis, "lock:a b", &[], script)).await;
        assert_eq!((done.code, &*done.err), (7, ""));
        let token = done.out.trim().strip_prefix("lock:a b ").expect("the key");
        tokens.push(token.parse::<u64>().expect("a number"));
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    assert_nothing_is_held(&redis).await;
}

async fn assert_nothing_is_held(redis: &RedisServer) {
    let left = redis.dump().await;
    let mut keys = left.keys();
    assert!(
        keys.all(|key| key.starts_with("redisson_lock_token:")),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_command_that_is_killed_or_cannot_run_has_the_code_that_a_shell_gives() {
    let redis = RedisServer::start().await;
    let killed = done(running(&redis, "k", &[], "kill -9 $$")).await;
    assert_eq!(killed.code, 137, "{killed:?}");
    for (program, code) in [("/no/such/program", 127), ("/", 126)] {
        let command = lockctl(&redis.url(), &["run", "--key", "k", "--", program]);
        let done = done(command).await;
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.err.contains(program), "{done:?}");
    }
    assert_nothing_is_held(&redis).await;
}

#[tokio::test]
async fn options_after_the_command_are_passed_to_it() {
    let redis = RedisServer::start().await;
    let command = lockctl(
        &redis.url(),
        &["run", "--key", "k", "echo", "--key", "-n", "--help"],
    );
    let done = done(command).await;
    assert_eq!(
        (done.code, &*done.out),
        (0, "--key -n --help\n"),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_busy_lock_has_a_code_of_its_own_or_that_of_the_callers_choice() {
    let redis = RedisServer::start().await;
    let guard = client(&redis).await.lock("k").await.expect("it is free");
    for (options, code) in [
        (&["--wait", "0"][..], 80),
        (&["--wait", "300ms"], 80),
        (&["--wait", "0", "-E", "0"], 0),
        (&["--wait", "0", "--busy-code", "75"], 75),
        (&["--wait", "0", "--mode", "fair"], 80),
    ] {
        let done = done(running(&redis, "k", options, "echo it ran")).await;
        assert_eq!((done.code, &*done.out), (code, ""), "{options:?}: {done:?}");
        assert!(done.err.contains("still in use"), "{done:?}");
    }
    guard.release().await.expect("it was held");
    let done = done(running(&redis, "k", &["--wait", "0"], "echo it ran")).await;
    assert_eq!((done.code, &*done.out), (0, "it ran\n"));
}

#[tokio::test]
async fn of_two_at_once_the_second_waits_for_the_end_of_the_first() {
    let redis = RedisServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    for mode in ["reentrant", "fair", "write"] {
        let script = format!(
            "echo begin >> {0}; sleep 0.3; echo end >> {0}",
            log.display()
        );
        let options = ["--mode", mode, "--wait", "20s"];
        let both = [0; 2].map(|_| done(running(&redis, mode, &options, &script)));
        for done in futures_util::future::join_all(both).await {
            assert_eq!(done.code, 0, "{done:?}");
        }
        let lines = fs::read_to_string(&log).expect("it was written");
        assert_eq!(lines, "begin\nend\nbegin\nend\n", "{mode}");
        fs::remove_file(&log).expect("it is there");
    }
}

#[tokio::test]
async fn a_lock_stays_taken_for_the_least_time_although_its_command_has_ended() {
    let redis = RedisServer::start().await;
    let once = ["--wait", "0", "--hold-at-least", "3s", "--lease", "3s"];
    let began = Instant::now();
    let first = done(running(&redis, "k", &once, "echo it ran")).await;
    assert_eq!((first.code, &*first.out), (0, "it ran\n"), "{first:?}");
    let late = done(running(&redis, "k", &once, "echo it ran")).await;
    assert_eq!((late.code, &*late.out), (80, ""), "{late:?}");
    let next = done(running(&redis, "k", &["--wait", "20s"], "echo it ran")).await;
    assert_eq!((next.code, &*next.out), (0, "it ran\n"), "{next:?}");
    assert!(began.elapsed() >= Duration::from_secs(3));
    let readers = ["--mode", "read", "--hold-at-least", "3s"];
    let refused = done(running(&redis, "k", &readers, "echo it ran")).await;
    assert_ne!(refused.code, 0, "readers do not keep each other out");
}

#[tokio::test]
async fn readers_run_together_and_have_no_token() {
    let redis = RedisServer::start().await;
    let script = "echo ready${LOCK_FENCING_TOKEN-}; sleep 60";
    let mut reader = ready(running(&redis, "k", &["--mode", "read"], script)).await;
    let options = ["--mode", "read", "--wait", "0"];
    let other = done(running(
        &redis,
        "k",
        &options,
        "echo $LOCK_KEY${LOCK_FENCING_TOKEN-}",
    ))
    .await;
    assert_eq!((other.code, &*other.out), (0, "k\n"), "{other:?}");
    let writer = done(running(
        &redis,
        "k",
        &["--mode", "write", "--wait", "0"],
        "true",
    ))
    .await;
    assert_eq!(writer.code, 80, "{writer:?}");
    assert_eq!(reader.output(), "ready\n");
    reader.terminate();
    assert_eq!(reader.end().await.code(), Some(143));
}

#[tokio::test]
async fn a_command_that_is_announced_is_shown_with_its_process() {
    let redis = RedisServer::start().await;
    let label = ["--announce", "nightly\u{1b}[2J"];
    let mut holder = ready(running(&redis, "k", &label, "echo ready; sleep 60")).await;
    let pid = holder.id();
    let shown = format!("nightly\\u{{1b}}[2J, process {pid} on ");
    eventually("it is announced", SOON, async || {
        let table = done(lockctl(&redis.url(), &["show", "k"])).await;
        table.out.contains(&shown).then_some(()).ok_or(table)
    })
    .await;
    let listed = done(lockctl(&redis.url(), &["ls"])).await;
    assert!(listed.out.contains(&shown), "{listed:?}");
    let json = done(lockctl(&redis.url(), &["show", "k", "--json"])).await;
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["holders"][0]["process"]["pid"], pid);
    assert_eq!(json["holders"][0]["process"]["label"], label[1]);
    holder.terminate();
    assert_eq!(holder.end().await.code(), Some(143));
}

#[tokio::test]
async fn no_more_commands_run_at_a_time_than_there_are_permits() {
    let redis = RedisServer::start().await;
    let script = "echo ready${LOCK_FENCING_TOKEN-}; sleep 60";
    let permits = ["--permits", "2"];
    let mut first = ready(running(&redis, "k", &permits, script)).await;
    let mut second = ready(running(&redis, "k", &permits, script)).await;
    assert_eq!(
        (first.output(), second.output()),
        ("ready\n".into(), "ready\n".into())
    );
    let shown = done(lockctl(&redis.url(), &["show", "k"])).await;
    assert!(shown.out.contains("k is held, 2 of 2 permits"), "{shown:?}");

    for (options, code) in [
        (&["--permits", "2", "--wait", "0"][..], 80),
        (&["--permits", "3", "--wait", "0"], 84),
        (&["--mode", "fair", "--wait", "0"], 84),
        (&["--permits", "2", "--mode", "fair"], 64),
        (&["--permits", "0"], 64),
    ] {
        let done = done(running(&redis, "k", options, "echo it ran")).await;
        assert_eq!((done.code, &*done.out), (code, ""), "{options:?}: {done:?}");
    }
    let waiting = done(running(&redis, "k", &permits, "echo it ran"));
    let freed = async {
        first.terminate();
        assert_eq!(first.end().await.code(), Some(143));
    };
    let (waiting, ()) = tokio::join!(waiting, freed);
    assert_eq!(
        (waiting.code, &*waiting.out),
        (0, "it ran\n"),
        "{waiting:?}"
    );
    second.terminate();
    assert_eq!(second.end().await.code(), Some(143));
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let redis = RedisServer::start().await;
    let options = ["--lease", "2s"];
    let mut holder = ready(running(
        &redis,
        "k",
        &options,
        "echo ready; sleep 5; exit 3",
    ))
    .await;
    let request = client(&redis).await.lock("k").wait(Duration::from_secs(3));
    assert!(request.await.is_err_and(|error| error.is_busy()));
    assert_eq!(holder.end().await.code(), Some(3));
}

#[tokio::test]
async fn what_is_no_lock_of_this_kind_is_refused() {
    let redis = RedisServer::start().await;
    let () = redis.ask(&["SET", "data", "x"]).await;
    let conflict = done(running(&redis, "data", &[], "echo it ran")).await;
    assert_eq!((conflict.code, &*conflict.out), (84, ""), "{conflict:?}");

    let locks = client(&redis).await;
    let reading = locks.lock("k").mode(LockMode::Read).lease(Lease::default());
    let reading = reading.await.expect("it is free");
    let conflict = done(running(&redis, "k", &["--mode", "fair"], "echo it ran")).await;
    assert_eq!((conflict.code, &*conflict.out), (84, ""), "{conflict:?}");
    reading.release().await.expect("it was held");
}

#[tokio::test]
async fn a_wait_that_is_ended_by_a_signal_leaves_nothing_behind() {
    let redis = RedisServer::start().await;
    let locks = client(&redis).await;
    let request = locks.lock("k").mode(LockMode::Fair);
    let guard = request.await.expect("it is free");
    let mut command = running(&redis, "k", &["--mode", "fair"], "echo it ran");
    let mut waiter = crate::support::Process::spawn(&mut command).expect("lockctl is built");
    let queue = "redisson_lock_queue:{k}";
    eventually("it waits", SOON, async || {
        redis.dump().await.contains_key(queue)
    })
    .await;
    waiter.terminate();
    assert_eq!(waiter.end().await.code(), Some(143));
    assert_eq!(waiter.output(), "");
    assert!(!redis.dump().await.contains_key(queue));
    guard.release().await.expect("it was held");
}

/// As when a new version is installed in its place.
#[tokio::test]
async fn a_lockctl_whose_file_is_removed_while_it_waits_runs_its_command() {
    let redis = RedisServer::start().await;
    let request = client(&redis).await.lock("k").mode(LockMode::Fair);
    let guard = request.await.expect("it is free");
    let binary = crate::support::binary("lockctl");
    let folder = tempfile::tempdir_in(binary.parent().expect("a folder")).expect("a folder");
    let linked = folder.path().join("lockctl");
    fs::hard_link(&binary, &linked).expect("it is linked");
    let command = running(&redis, "k", &["--mode", "fair"], "echo it ran");
    let mut waiter = std::process::Command::new(&linked);
    waiter.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => waiter.env(name, value),
            None => waiter.env_remove(name),
        };
    }
    let mut waiter = crate::support::Process::spawn(&mut waiter).expect("it is linked");
    eventually("it waits", SOON, async || {
        redis.dump().await.contains_key("redisson_lock_queue:{k}")
    })
    .await;
    fs::remove_file(&linked).expect("it is there");
    guard.release().await.expect("it was held");
    assert_eq!(waiter.end().await.code(), Some(0), "{}", waiter.output());
    assert_eq!(waiter.output(), "it ran\n");
}

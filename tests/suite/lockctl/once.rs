//! Commands that run once under an idempotency key.

mod output;

use std::fs;
use std::time::Duration;

use super::{Done, SOON, break_lock, client, done, lockctl, ready};
use crate::support::{RedisServer, eventually};

/// A folder in which a script leaves a line each time that it runs.
struct Runs(tempfile::TempDir);

impl Runs {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn count(&self) -> usize {
        let log = fs::read_to_string(self.0.path().join("log"));
        log.unwrap_or_default().lines().count()
    }

    /// `lockctl run` with an idempotency key, of a script that is counted.
    fn once(
        &self,
        redis: &RedisServer,
        name: &str,
        options: &[&str],
        script: &str,
    ) -> std::process::Command {
        let script = format!("echo ran >> log; {script}");
        let mut arguments = vec!["run", "--idempotency-key", name];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", &script]);
        let mut command = lockctl(&redis.url(), &arguments);
        command.current_dir(self.0.path());
        command
    }
}

fn said(done: &Done) -> (i32, &str, &str) {
    (done.code, &done.out, &done.err)
}

#[tokio::test]
async fn a_repeat_has_the_output_and_the_exit_code_of_the_first_run() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "echo $$; printf '\\377\\000'; echo trouble >&2; exit 5";
    let run = || runs.once(&redis, "billing:2026-11-22", &[], script);
    // The bytes are no text.
    let output = async |mut command: std::process::Command| {
        let output = tokio::task::spawn_blocking(move || command.output());
        output.await.expect("no panic").expect("lockctl is built")
    };
    let first = output(run()).await;
    assert_eq!(first.status.code(), Some(5), "{first:?}");
    assert!(first.stdout.ends_with(b"\n\xff\0"), "{first:?}");
    assert_eq!(first.stderr, b"trouble\n");
    let repeat = output(run()).await;
    assert_eq!(repeat, first);
    assert_eq!(runs.count(), 1);
    // Another name is another run.
    let other = output(runs.once(&redis, "billing:2026-11-23", &[], script)).await;
    assert_ne!(other.stdout, first.stdout);
    assert_eq!(runs.count(), 2);

    let records = done(lockctl(&redis.url(), &["ls", "--records"])).await;
    assert_eq!(records.code, 0, "{records:?}");
    let names: Vec<_> = records.out.lines().skip(1).collect();
    assert!(
        names[0].starts_with("idempotency:lockctl:billing%3A2026-11-22 "),
        "{records:?}"
    );
    assert_eq!(names.len(), 2, "{records:?}");
}

#[tokio::test]
async fn of_many_at_once_one_runs_and_the_others_replay_it() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let all = (0..5).map(|_| done(runs.once(&redis, "job", &[], "sleep 0.5; echo $$")));
    let all = futures_util::future::join_all(all).await;
    assert_eq!(runs.count(), 1);
    for done in &all {
        assert_eq!(said(done), (0, &*all[0].out, ""));
    }
}

#[tokio::test]
async fn a_repeat_that_does_not_wait_is_busy_while_the_first_runs() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "echo ready; while ! [ -e go ]; do sleep 0.02; done";
    let mut first = ready(runs.once(&redis, "job", &[], script)).await;
    let busy = done(runs.once(&redis, "job", &["--wait", "0"], script)).await;
    assert_eq!(busy.code, 80, "{busy:?}");
    let skipped = done(runs.once(&redis, "job", &["--wait", "0", "-E", "0"], script)).await;
    assert_eq!(skipped.code, 0, "{skipped:?}");
    fs::write(runs.0.path().join("go"), "").expect("it is written");
    assert_eq!(first.end().await.code(), Some(0));
    let repeat = done(runs.once(&redis, "job", &["--wait", "0"], script)).await;
    assert_eq!(said(&repeat), (0, "ready\n", ""));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_failure_runs_again_if_only_success_is_remembered() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "[ $(wc -l < log) = 2 ]";
    for code in [1, 0, 0] {
        let done = done(runs.once(&redis, "job", &["--remember", "success"], script)).await;
        assert_eq!(done.code, code, "{done:?}");
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_command_that_was_killed_runs_again() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "[ $(wc -l < log) = 2 ] || kill -9 $$";
    for code in [137, 0, 0] {
        let done = done(runs.once(&redis, "job", &[], script)).await;
        assert_eq!(done.code, code, "{done:?}");
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_command_that_lost_its_claim_is_ended_and_not_remembered() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script = "trap 'echo tidied up; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut first = ready(runs.once(&redis, "job", &["--lease", "2s"], script)).await;
    break_lock(&redis, "idempotency:lockctl:job").await;
    assert_eq!(first.end().await.code(), Some(82));
    let output = first.output();
    assert!(output.contains("tidied up"), "{output}");
    let again = done(runs.once(&redis, "job", &[], "echo again")).await;
    assert_eq!(said(&again), (0, "again\n", ""));
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_command_that_lost_its_claim_while_it_waited_is_not_begun() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let locks = client(&redis).await;
    let guard = locks.lock("lock:db").await.expect("it is free");
    let options = ["--key", "lock:db", "--lease", "2s"];
    let mut command = runs.once(&redis, "job", &options, "true");
    let mut waiter = crate::support::Process::spawn(&mut command).expect("lockctl is built");
    let admin = locks.admin().expect("Redis can be looked into");
    eventually("it has the claim, and it can be broken", SOON, async || {
        let broken = admin.force_unlock("idempotency:lockctl:job").await;
        broken.expect("it is a lock")
    })
    .await;
    assert_eq!(waiter.end().await.code(), Some(82));
    assert_eq!(runs.count(), 0);
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn a_command_holds_the_lock_of_its_key_as_well() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let script =
        "echo ready $LOCK_KEY ${LOCK_FENCING_TOKEN:+token}; while ! [ -e go ]; do sleep 0.02; done";
    let options = ["--key", "lock:db", "--mode", "fair"];
    let mut first = ready(runs.once(&redis, "job", &options, script)).await;
    assert_eq!(first.output(), "ready lock:db token\n");
    let free = client(&redis)
        .await
        .lock("lock:db")
        .wait(Duration::ZERO)
        .await;
    assert!(free.is_err_and(|error| error.is_busy()));
    // Another job waits for the lock, and gives its claim up when a signal ends it.
    let mut other =
        crate::support::Process::spawn(&mut runs.once(&redis, "other", &options, script))
            .expect("lockctl is built");
    eventually("it waits for the lock", SOON, async || {
        redis
            .dump()
            .await
            .contains_key("redisson_lock_queue:{lock:db}")
    })
    .await;
    other.terminate();
    assert_eq!(other.end().await.code(), Some(143));
    let busy = done(runs.once(
        &redis,
        "third",
        &[&options[..], &["--wait", "0"]].concat(),
        script,
    ))
    .await;
    assert_eq!(busy.code, 80, "{busy:?}");
    fs::write(runs.0.path().join("go"), "").expect("it is written");
    assert_eq!(first.end().await.code(), Some(0));
    assert_eq!(runs.count(), 1);
    // A replay needs no lock.
    let guard = client(&redis)
        .await
        .lock("lock:db")
        .mode(tower_distributed_lock::LockMode::Fair)
        .await;
    let repeat = done(runs.once(&redis, "job", &options, script)).await;
    assert_eq!(said(&repeat), (0, "ready lock:db token\n", ""));
    guard
        .expect("it is free")
        .release()
        .await
        .expect("it was held");
    let left: Vec<_> = redis.dump().await.into_keys().collect();
    let kept = ["redisson_lock_token:", "tower_lock_record:"];
    assert!(
        left.iter()
            .all(|key| kept.iter().any(|kept| key.starts_with(kept))),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_record_of_another_program_is_not_replayed() {
    let redis = RedisServer::start().await;
    let runs = Runs::new();
    let locks = client(&redis).await;
    let theirs = locks.lock("idempotency:lockctl:job");
    let theirs = theirs.once(Duration::from_secs(60), async |_| Ok::<_, ()>(17));
    assert!(theirs.await.is_ok());
    let done = done(runs.once(&redis, "job", &[], "")).await;
    assert_eq!((done.code, &*done.out), (84, ""), "{done:?}");
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn services_with_different_name_spaces_share_no_lock() {
    let redis = RedisServer::start().await;
    let script = "echo ready $LOCK_KEY; sleep 60";
    let run = |space| {
        let arguments = [
            "--namespace",
            space,
            "run",
            "--key",
            "k",
            "--wait",
            "0",
            "--",
            "sh",
            "-c",
            script,
        ];
        lockctl(&redis.url(), &arguments)
    };
    let mut shop = ready(run("prod-shop")).await;
    let mut stock = ready(run("prod-stock")).await;
    assert_eq!(shop.output(), "ready k\n");
    assert_eq!(done(run("prod-shop")).await.code, 80);
    let all = done(lockctl(&redis.url(), &["ls"])).await.out;
    assert!(
        all.contains("prod-shop:k ") && all.contains("prod-stock:k "),
        "{all}"
    );
    let one = done(lockctl(
        &redis.url(),
        &["ls", "--namespace", "prod-shop", "--json"],
    ))
    .await
    .out;
    let one: serde_json::Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(one["locks"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(one["locks"][0]["key"], "k");
    let rules = ["acl", "lock:", "--namespace", "prod-shop"];
    assert!(
        done(lockctl("", &rules))
            .await
            .out
            .contains("~prod-shop:lock:*")
    );
    for wrong in ["", "a:b", "a b"] {
        assert_eq!(done(run(wrong)).await.code, 64, "{wrong:?}");
    }
    for process in [&mut shop, &mut stock] {
        process.terminate();
        assert_eq!(process.end().await.code(), Some(143));
    }
}

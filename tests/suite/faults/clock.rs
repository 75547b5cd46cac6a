//! A server whose clock is stepped.
//!
//! Lease exclusion does not survive that (S1: "unless its clock is stepped"). A step forward ends every lease at once.
//! After a step back, a dead holder keeps its lock, and a dead waiter its place, longer by the step. The other promises
//! need no clock.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tempfile::TempDir;
use tower_distributed_lock::{LockClient, LockError, LockGuard, LockMode};

use super::{MODES, SOON, client, granted, wait_for_everything, works_again};
use crate::support::{RedisServer, eventually};

const HOUR: i64 = 3600;

/// A server's clock, which can be stepped while it runs.
struct Clock {
    step: File,
    _directory: TempDir,
}

impl Clock {
    /// Starts a server with a clock of its own.
    async fn and_server() -> (Self, RedisServer) {
        let directory = TempDir::new().expect("a temporary directory");
        let [library, step] = ["clock.so", "step"].map(|name| directory.path().join(name));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/suite/faults/clock.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([library.as_os_str(), source.as_ref()])
            .output()
            .expect("`cc` can be run: `apt-get install gcc`");
        assert!(built.status.success(), "{built:?}");
        fs::write(&step, 0_i64.to_ne_bytes()).expect("written");
        let server = RedisServer::builder()
            .env("LD_PRELOAD", &library)
            .env("CLOCK_STEP", &step)
            .start()
            .await;
        let step = File::options().write(true).open(step).expect("opened");
        let clock = Self {
            step,
            _directory: directory,
        };
        (clock, server)
    }

    /// Sets the clock this number of seconds ahead of the time, or behind it.
    async fn set(&self, server: &RedisServer, seconds: i64) {
        self.step
            .write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("written");
        // Seen on Valkey 9: the next command may still get the former time.
        eventually("the server notices", SOON, async || {
            let time = SystemTime::now().duration_since(UNIX_EPOCH);
            let time = time.expect("it is past 1970").as_secs().cast_signed();
            let off = now(server).await - time - seconds;
            if off.abs() < 600 { Ok(()) } else { Err(off) }
        })
        .await;
    }
}

/// The time that the server's scripts see.
async fn now(server: &RedisServer) -> i64 {
    let (seconds, _micros): (i64, i64) = redis::cmd("EVAL")
        .arg("return redis.call('TIME')")
        .arg(0)
        .query_async(&mut server.connection().await)
        .await
        .expect("the time");
    seconds
}

async fn fenced(locks: &LockClient, mode: LockMode) -> LockGuard {
    let asking = locks.lock(mode.as_str()).mode(mode);
    let asking = match mode {
        LockMode::Read => asking,
        _ => asking.fenced(),
    };
    asking.await.expect("free")
}

/// S5, S6, L2: every lease ends at once. No release is confirmed, and waiting requests are granted with higher tokens.
#[tokio::test]
async fn a_clock_put_forward_ends_every_lease_and_no_release_is_confirmed() {
    let (clock, server) = Clock::and_server().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    let mut guards = Vec::new();
    for mode in MODES {
        guards.push(fenced(&holder, mode).await);
    }
    let waiting = wait_for_everything(&server, &other).await;
    clock.set(&server, HOUR).await;
    for waiting in waiting {
        granted(waiting).await.release().await.expect("held");
    }
    for (mode, stale) in MODES.into_iter().zip(guards) {
        let next = fenced(&other, mode).await;
        assert!(next.fencing_token() > stale.fencing_token() || mode == LockMode::Read);
        let released = stale.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        next.release().await.expect("held");
    }
    works_again(&server, &[&holder, &other]).await;
}

/// S5, S6, L2, L3: holds are confirmed, waiting requests are woken, and tokens rise further from their counter.
#[tokio::test]
async fn a_clock_put_back_keeps_what_is_held_and_tokens_rising() {
    let (clock, server) = Clock::and_server().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    clock.set(&server, HOUR).await;
    let mut guards = Vec::new();
    for mode in MODES {
        guards.push(fenced(&holder, mode).await);
    }
    let tokens: Vec<_> = guards.iter().map(LockGuard::fencing_token).collect();
    let waiting = wait_for_everything(&server, &other).await;
    clock.set(&server, 0).await;
    for guard in guards {
        guard.release().await.expect("held all the time");
    }
    for waiting in waiting {
        granted(waiting).await.release().await.expect("held");
    }
    for (mode, before) in MODES.into_iter().zip(tokens) {
        let next = fenced(&other, mode).await;
        assert!(next.fencing_token() > before || mode == LockMode::Read);
        next.release().await.expect("held");
    }
    works_again(&server, &[&holder, &other]).await;
}

/// The offset of the server's clock by an audit: the server and the value of its gauge, and the fact of the report.
async fn audited(locks: &LockClient) -> (String, f64, String) {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let audit = {
        let _local = metrics::set_default_local_recorder(&recorder);
        locks.audit().await.expect("it answers")
    };
    let fact = audit.facts.iter().find(|(name, _)| *name == "clock");
    let (_, fact) = fact.expect("the server names its time");
    let mut gauges = snapshots.snapshot().into_vec().into_iter();
    let offset = gauges.find_map(|(key, _, _, value)| match value {
        DebugValue::Gauge(offset) => {
            let (_, key) = key.into_parts();
            let server = key.labels().find(|label| label.key() == "server");
            (key.name() == "distributed_lock_clock_offset_seconds")
                .then(|| (server.map(|label| label.value().to_owned()), offset.0))
        }
        _ => None,
    });
    let (server, offset) = offset.expect("it was measured");
    (server.expect("it is named"), offset, fact.clone())
}

#[tokio::test]
async fn an_audit_shows_how_far_the_clock_was_stepped() {
    let (clock, server) = Clock::and_server().await;
    let locks = client(server.url()).await;
    for (step, side) in [(HOUR, "ahead of"), (-HOUR, "behind")] {
        clock.set(&server, step).await;
        eventually("the audit shows the step", SOON, async || {
            let (named, offset, fact) = audited(&locks).await;
            // After a restart its gauge is the same.
            assert_eq!(named, format!("127.0.0.1:{}", server.port()));
            let off = offset - step as f64;
            match off.abs() < 600.0 && fact.contains(side) {
                true => Ok(()),
                false => Err((offset, fact)),
            }
        })
        .await;
    }
}

/// S1, S4. Redis 7 replicates an expiry as a time of the day: a promoted server whose clock is ahead ends each lease early.
#[tokio::test]
async fn an_audit_shows_a_replica_whose_clock_is_ahead_of_its_masters() {
    let master = RedisServer::start().await;
    let (clock, replica) = Clock::and_server().await;
    let () = replica
        .ask(&["REPLICAOF", "127.0.0.1", &master.port().to_string()])
        .await;
    let locks = client(master.url()).await;
    let warned = async || {
        let audit = locks.audit().await.expect("it answers");
        let mut warnings = audit.warnings.into_iter();
        warnings.find(|warning| warning.kind == "replica_clock")
    };
    eventually("the replica follows", SOON, async || {
        let audit = locks.audit().await.expect("it answers").to_string();
        match audit.contains("1, 1 of them up to date") {
            true => Ok(()),
            false => Err(audit),
        }
    })
    .await;
    assert_eq!(warned().await, None);
    for (step, side) in [(HOUR, "ahead of"), (-HOUR, "behind")] {
        clock.set(&replica, step).await;
        let warning = eventually("the audit compares the clocks", SOON, warned).await;
        let address = format!("127.0.0.1:{} is 3", replica.port());
        assert!(warning.text.contains(&address), "{warning}");
        assert!(warning.text.contains(side), "{warning}");
    }
}

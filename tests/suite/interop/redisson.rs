//! A live Redisson: the driver of `tests/interop` as a child process.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Kind;
use crate::support::{Process, RedisCluster, RedisServer};

mod answer;
mod thread;

use answer::Reading;
pub(super) use answer::{Asked, now};
pub(super) use thread::JavaThread;

/// How long any answer may take: longer than any lease in these tests.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// A version of Redisson, by its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// The current protocol.
    V4_7,
    /// The old protocol.
    V3_15,
}

impl Version {
    pub(super) const ALL: [Self; 2] = [Self::V4_7, Self::V3_15];

    pub(super) fn knows(self, kind: Kind) -> bool {
        self == Self::V4_7 || kind != Kind::Fenced
    }

    pub(super) fn kinds(self) -> Vec<Kind> {
        let known = |kind: &Kind| self.knows(*kind);
        Kind::ALL.into_iter().filter(known).collect()
    }

    fn number(self) -> &'static str {
        match self {
            Self::V4_7 => "4.7.0",
            Self::V3_15 => "3.15.6",
        }
    }

    fn jar(self) -> PathBuf {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        interop
            .join("target")
            .join(self.number())
            .join("driver.jar")
    }
}

/// A Redisson client in a process of its own; killed on drop.
///
/// It belongs to no runtime, so that tests can share it.
#[derive(Debug)]
pub(super) struct Redisson {
    pub(super) version: Version,
    id: String,
    process: Mutex<Process>,
    stdin: Mutex<ChildStdin>,
    questions: AtomicU64,
    unanswered: Arc<Unanswered>,
}

/// The waiting callers by request id; `None` when no more answers will arrive.
type Unanswered = Mutex<Option<HashMap<u64, oneshot::Sender<String>>>>;

impl Redisson {
    /// Starts a Redisson that renews its leases to `watchdog`, and whose fair waiters (4.7) may block a queue for the same
    /// time. When this returns, it has taken its first locks, which are slow.
    pub(super) async fn start(version: Version, redis: &RedisServer, watchdog: Duration) -> Self {
        Self::start_with(version, &[redis.url()], watchdog).await
    }

    /// The same as a client of a cluster.
    pub(super) async fn start_in(
        version: Version,
        cluster: &RedisCluster,
        watchdog: Duration,
    ) -> Self {
        let addresses = cluster.urls().join(",");
        Self::start_with(version, &[addresses, "cluster".into()], watchdog).await
    }

    /// The current version, with a name mapper that puts `prefix` before each name.
    pub(super) async fn start_behind(
        prefix: &str,
        redis: &RedisServer,
        watchdog: Duration,
    ) -> Self {
        let prefix = format!("prefix={prefix}");
        Self::start_with(Version::V4_7, &[redis.url(), prefix], watchdog).await
    }

    async fn start_with(version: Version, place: &[String], watchdog: Duration) -> Self {
        let jar = version.jar();
        let number = version.number();
        assert!(
            jar.exists(),
            "{} is missing.\nThese tests need a live Redisson. `./scripts/test` builds it, and so does \
             `mvn -B -q -f tests/interop/pom.xml package -Dredisson={number}`.",
            jar.display()
        );
        let mut java = Command::new("java");
        // For a fast start and a low load.
        java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar"])
            .arg(jar)
            .args(place)
            .arg(format!("watchdog={}", watchdog.as_millis()))
            .arg(format!("fair-wait={}", watchdog.as_millis()));
        let (process, stdin, stdout) = Process::spawn_piped(&mut java).unwrap_or_else(|error| {
            panic!("cannot run `java`: {error}\nThese tests need a live Redisson: install Java 17 or later.")
        });
        let unanswered = Arc::new(Mutex::new(Some(HashMap::new())));
        let ready = listen(stdout, unanswered.clone());
        let mut redisson = Self {
            version,
            id: String::new(),
            process: Mutex::new(process),
            stdin: Mutex::new(stdin),
            questions: AtomicU64::new(0),
            unanswered,
        };
        let ready = timeout(LIMIT, ready).await.expect("Redisson connects");
        let ready = ready.expect("Redisson starts");
        let words: Vec<_> = ready.split(' ').collect();
        let ["ready", version, id] = words[..] else {
            panic!("`{ready}` instead of `ready <version> <uuid>`");
        };
        assert_eq!(version, number, "another Redisson than asked for");
        redisson.id = id.to_owned();
        redisson.warm_up().await;
        redisson
    }

    /// SIGKILL. It is dead on return, and open questions are never answered.
    pub(super) fn kill9(&self) {
        lock(&self.process).kill9();
    }

    /// A thread of this Redisson, which is an owner of locks.
    pub(super) fn thread(self: &Arc<Self>) -> JavaThread {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        JavaThread::new(self.clone(), format!("thread-{number}"))
    }

    /// Whether the lock is held (`isLocked`).
    pub(super) fn is_held(&self, kind: Kind, name: &str) -> Asked<bool> {
        self.ask(format_args!("held {kind} {name}"))
    }

    /// Ends any hold. Returns whether there was one.
    pub(super) fn force_unlock(&self, kind: Kind, name: &str) -> Asked<bool> {
        self.ask(format_args!("forceunlock {kind} {name}"))
    }

    /// Gives the semaphore a limit, unless it has one (`trySetPermits`).
    pub(super) fn set_permits(&self, name: &str, limit: u32) -> Asked<bool> {
        self.ask(format_args!("setpermits {name} {limit}"))
    }

    /// Changes the limit by so many (`addPermits`).
    pub(super) fn add_permits(&self, name: &str, number: i32) -> Asked<()> {
        self.ask(format_args!("addpermits {name} {number}"))
    }

    /// How many permits are free.
    pub(super) fn free_permits(&self, name: &str) -> Asked<u64> {
        self.ask(format_args!("freepermits {name}"))
    }

    /// Takes a permit: its id, or `none` when the wait is over.
    pub(super) fn take_permit(&self, name: &str, wait: Duration, lease: Duration) -> Asked<String> {
        let (wait, lease) = (wait.as_millis(), lease.as_millis());
        self.ask(format_args!("takepermit {name} {wait} {lease}"))
    }

    /// Takes one that never lapses, however long that takes (`acquire()`).
    pub(super) fn take_permit_for_ever(&self, name: &str) -> Asked<String> {
        self.ask(format_args!("takepermit {name} -1 -1"))
    }

    /// Gives a permit back; whether it was held until then.
    pub(super) fn give_permit(&self, name: &str, id: &str) -> Asked<bool> {
        self.ask(format_args!("givepermit {name} {id}"))
    }

    fn ask<T: Reading>(&self, question: impl Display) -> Asked<T> {
        let id = self.questions.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        if let Some(unanswered) = &mut *lock(&self.unanswered) {
            unanswered.insert(id, sender);
        }
        // One write, so that questions of different tests do not mix. An error is ignored: a process that has ended gives
        // no answer.
        let _ = lock(&self.stdin).write_all(format!("{id} {question}\n").as_bytes());
        Asked::new(&question, answer)
    }

    async fn warm_up(&self) {
        for kind in self.version.kinds() {
            let name = format!("warm-up.{}.{kind}", self.id);
            self.ask::<()>(format_args!("lock warm-up {kind} {name}"))
                .await
                .unwrap();
            self.ask::<()>(format_args!("unlock warm-up {kind} {name}"))
                .await
                .unwrap();
        }
    }
}

/// Passes every line to its waiting caller, on a separate thread; the first line reports that the driver is ready.
fn listen(stdout: ChildStdout, unanswered: Arc<Unanswered>) -> oneshot::Receiver<String> {
    let (sender, ready) = oneshot::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if let Some(first) = lines.next() {
            let _ = sender.send(first);
        }
        for line in lines {
            let (id, answer) = line.split_once(' ').unwrap_or((&line, ""));
            let id = id
                .parse()
                .expect("an answer begins with the id of its question");
            let waiting = lock(&unanswered)
                .as_mut()
                .and_then(|waiting| waiting.remove(&id));
            // The caller may have been dropped.
            drop(waiting.map(|waiting| waiting.send(answer.to_owned())));
        }
        *lock(&unanswered) = None;
    });
    ready
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

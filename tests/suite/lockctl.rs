//! The command line, as a process, against real servers.

mod addresses;
mod looks;
mod losses;
mod once;
mod run;
mod signals;
mod texts;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::timeout;
use tower_distributed_lock::{LockClient, RedisStore};

use crate::support::{Process, RedisServer, binary, eventually};

const SOON: Duration = Duration::from_secs(30);

/// `lockctl` with these arguments, for the store at `url`. It is not in the foreground of the terminal at which the tests run.
pub(crate) fn lockctl(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("lockctl"));
    command
        .args(arguments)
        .env("REDIS_URL", url)
        .stdin(Stdio::null())
        .process_group(0);
    without_settings(&mut command);
    command
}

/// Removes what lockctl reads beside `REDIS_URL`: the person who runs the tests may have set it.
fn without_settings(command: &mut Command) -> &mut Command {
    for variable in [
        "REDIS_USER",
        "REDIS_PASSWORD",
        "REDIS_PASSWORD_FILE",
        "LOCKCTL_NAMESPACE",
        "LOCKCTL_TLS_CA",
        "LOCKCTL_TLS_CERT",
        "LOCKCTL_TLS_KEY",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The result of a `lockctl`.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Waits for the end.
pub(crate) async fn done(command: Command) -> Done {
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let output = timeout(SOON, command.output()).await.expect("it ends");
    let output = output.unwrap_or_else(|error| {
        panic!("{error}\n`./scripts/test` builds lockctl, and so does `cargo build -p lockctl`.")
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Done {
        code: output.status.code().expect("lockctl exits"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// `lockctl run` of a shell script, under the lock `key`.
fn running(redis: &RedisServer, key: &str, options: &[&str], script: &str) -> Command {
    let mut arguments = vec!["run", "--key", key];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    lockctl(&redis.url(), &arguments)
}

/// The same, started by a shell that does `first` before it becomes lockctl.
fn after(first: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .process_group(0)
        .args(["-c", &format!("{first}; exec \"$0\" \"$@\"")])
        .arg(command.get_program())
        .args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(variable, value),
            None => shell.env_remove(variable),
        };
    }
    shell
}

/// Where a script waits until it may go on.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("go")
    }

    /// A script that waits here, and then does `rest`.
    fn before(&self, rest: &str) -> String {
        let path = self.path();
        format!(
            "echo ready; while ! [ -e {} ]; do sleep 0.02; done; {rest}",
            path.display()
        )
    }

    fn open(&self) {
        fs::write(self.path(), "").expect("it is written");
    }
}

/// Starts a `lockctl` that runs a script, and waits until the script has written `ready`.
async fn ready(mut command: Command) -> Process {
    let mut process = Process::spawn(&mut command).expect("lockctl is built");
    until_written(&mut process, "ready").await;
    process
}

/// Waits until the output of the process contains `text`.
async fn until_written(process: &mut Process, text: &str) {
    eventually("it is written", SOON, async || {
        let output = process.output();
        if let Some(status) = process.ended() {
            assert!(output.contains(text), "{status}: {output}");
        }
        output.contains(text)
    })
    .await;
}

/// The id that a script wrote as `pid <number>`.
fn pid(process: &Process) -> nix::unistd::Pid {
    let output = process.output();
    let mut lines = output.lines();
    let number = lines.find_map(|line| line.strip_prefix("pid "));
    let number = number.expect("the script wrote its id").parse();
    nix::unistd::Pid::from_raw(number.expect("a number"))
}

/// Waits until no process has this id. An orphan that only waits to be reaped counts as gone.
async fn until_gone(pid: nix::unistd::Pid) {
    eventually("the process has gone", SOON, async || {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = status.rsplit_once(") ").map(|(_, state)| state);
        state.is_none_or(|state| state.starts_with('Z'))
    })
    .await;
}

/// Breaks the lock `key`.
async fn break_lock(redis: &RedisServer, key: &str) {
    let admin = client(redis).await.admin();
    let admin = admin.expect("Redis can be looked into");
    let broken = admin.force_unlock(key).await;
    assert!(broken.expect("it is a lock"));
}

async fn client(redis: &RedisServer) -> LockClient {
    LockClient::new(
        RedisStore::connect(redis.url())
            .await
            .expect("Redis is there"),
    )
}

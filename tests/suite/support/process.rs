//! A child process that does not outlive its test.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{io, thread};

use nix::sys::signal::{self, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::eventually;

/// A running child. Signals go to its own id only. It is killed and reaped on drop.
///
/// Its output is kept in an unnamed file, and shown when the test fails.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    output: File,
}

impl Process {
    /// Starts `command`, with standard output and standard error going to [`output`](Self::output).
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let output = tempfile::tempfile()?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        Self::start(command, output)
    }

    /// Starts `command`, and returns its standard input and standard output.
    pub(crate) fn spawn_piped(
        command: &mut Command,
    ) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let output = tempfile::tempfile()?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output.try_clone()?);
        let mut process = Self::start(command, output)?;
        let stdin = process.child.stdin.take().expect("stdin is piped");
        let stdout = process.child.stdout.take().expect("stdout is piped");
        Ok((process, stdin, stdout))
    }

    fn start(command: &mut Command, output: File) -> io::Result<Self> {
        Ok(Self {
            name: command.get_program().to_string_lossy().into_owned(),
            child: command.spawn()?,
            output,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far.
    pub(crate) fn output(&self) -> String {
        // Positioned reads, because the child writes at the shared offset of the file.
        let length = self.output.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.output.read_exact_at(&mut bytes, 0);
        read.map_or_else(
            |error| format!("(unreadable: {error})"),
            |()| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// How it ended, or `None` while it runs (or is paused).
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for it to end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        const LIMIT: Duration = Duration::from_secs(30);
        let what = format!("{} ({}) ends", self.name, self.id());
        eventually(&what, LIMIT, async || self.ended()).await
    }

    /// SIGTERM: asks it to end. Does not wait; see [`end`](Self::end).
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
    }

    /// SIGKILL. It is dead and reaped on return.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// SIGSTOP. The process is stopped on return, until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::SIGSTOP);
        // The signal is only queued when `kill` returns.
        let status = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(
            matches!(status, Ok(WaitStatus::Stopped(..))),
            "{} did not stop: {status:?}",
            self.name
        );
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    /// Does not wait for the effect of the signal.
    pub(crate) fn signal(&mut self, signal: Signal) {
        // The id of a reaped child may belong to another process.
        let ended = self.ended();
        assert!(
            ended.is_none(),
            "{signal} for {}, which has ended: {ended:?}",
            self.name
        );
        signal::kill(self.pid(), signal).expect("a child can be signalled");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        if thread::panicking() {
            let (name, output) = (&self.name, self.output());
            eprintln!("--- output of {name} ({killed:?}):\n{output}---");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use nix::errno::Errno;
    use nix::sys::signal;
    use nix::unistd::Pid;

    use crate::support::{Process, eventually};

    fn shell(script: &str) -> Process {
        Process::spawn(Command::new("sh").args(["-c", script])).expect("a shell")
    }

    #[tokio::test]
    async fn output_and_status_are_kept() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        assert_eq!(process.end().await.code(), Some(3));
        assert_eq!(process.output(), "out\nerr\n");
    }

    #[tokio::test]
    async fn a_paused_process_does_nothing_until_resumed() {
        let mut process = shell("while :; do echo tick; done");
        process.pause();
        let before = process.output();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(process.output(), before);

        process.resume();
        eventually("it goes on", Duration::from_secs(30), async || {
            process.output() != before
        })
        .await;
        process.terminate();
        assert!(!process.end().await.success());
    }

    #[test]
    fn dropping_kills_even_what_is_paused() {
        let mut process = shell("sleep 600");
        process.pause();
        let id = Pid::from_raw(process.id().cast_signed());
        drop(process);
        assert_eq!(signal::kill(id, None), Err(Errno::ESRCH));
    }

    #[test]
    #[should_panic(expected = "which has ended")]
    fn a_reaped_process_is_never_signalled() {
        let mut process = shell("sleep 600");
        process.kill9();
        process.terminate();
    }
}

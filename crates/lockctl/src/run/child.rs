//! The command, as a process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, process};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgrp, getppid, tcgetpgrp};
use tokio::time::{Instant, sleep};
use tower_distributed_lock::LockHandle;

use super::output::Passing;
use crate::cli::LossAction;
use crate::messages::{finish, warn};

/// The first argument of a lockctl that becomes a command. No subcommand has this name.
const TRAMPOLINE: &str = "__become";

/// The exit codes of a shell for a command that cannot be run.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How often lockctl checks whether a group still has processes.
const POLL: Duration = Duration::from_millis(20);

/// A running command.
pub(super) struct Child {
    process: tokio::process::Child,
    /// The id of the command, and of its group if it has one.
    id: Pid,
    /// Whether it leads a process group of its own: a signal also reaches its children. Otherwise it is in the group of lockctl,
    /// so that it may read from the terminal, and is suspended with lockctl.
    leads_group: bool,
}

/// Whether lockctl is in the foreground of its terminal: a command may open that, whatever its standard input is.
fn in_foreground() -> bool {
    // A process of cron or of a service has none.
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

impl Child {
    /// Starts `command` under `lock`, through a lockctl that becomes the command.
    pub(super) fn start(
        command: &[OsString],
        lock: &LockHandle,
        on_lost: LossAction,
        captured: bool,
    ) -> io::Result<Self> {
        let leads_group = !io::stdin().is_terminal() && !in_foreground();
        let mut start = tokio::process::Command::new(own_program()?);
        start
            .arg0("lockctl")
            .arg(TRAMPOLINE)
            .arg(process::id().to_string())
            .arg(death_signal(on_lost).map_or("none", Signal::as_str))
            .args(command)
            .env("LOCK_KEY", lock.key().to_string())
            .env_remove("LOCK_FENCING_TOKEN");
        if let Some(token) = lock.fencing_token() {
            start.env("LOCK_FENCING_TOKEN", token.to_string());
        }
        if leads_group {
            start.process_group(0);
        }
        if captured {
            start.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let process = start.spawn()?;
        let id = process.id().expect("it has not been waited for");
        Ok(Self {
            process,
            id: Pid::from_raw(id.cast_signed()),
            leads_group,
        })
    }

    /// Begins to pass on what it writes, if that is captured.
    pub(super) fn passing(&mut self) -> Option<Passing> {
        let (out, err) = (self.process.stdout.take()?, self.process.stderr.take()?);
        Some(Passing::new([
            (Box::new(out), Box::new(tokio::io::stdout())),
            (Box::new(err), Box::new(tokio::io::stderr())),
        ]))
    }

    /// Waits for its end. Cancel safe.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Forwards a signal that lockctl got, unless the terminal has sent it to the command as well.
    pub(super) fn pass_on(&self, signal: Signal) {
        // Not HUP: a terminal that hangs up signals the leader of its session alone.
        let by_terminal = matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
        if self.leads_group || !by_terminal {
            self.signal(signal);
        }
    }

    /// Signals the command, and the processes in its group.
    pub(super) fn signal(&self, signal: Signal) {
        let sent = match self.process.id() {
            _ if self.leads_group => killpg(self.id, signal),
            Some(_) => kill(self.id, signal),
            // It has been waited for: its id may belong to another process.
            None => Ok(()),
        };
        if let Err(error) = sent
            && error != Errno::ESRCH
        {
            warn(format_args!("cannot send {signal} to the command: {error}"));
        }
    }

    /// Ends the processes that the command has left in its group: waits until `deadline`, and then kills them.
    pub(super) async fn clear(&self, deadline: Instant) {
        // While the group has a process, its id is not reused.
        while self.leads_group && killpg(self.id, None).is_ok() {
            if Instant::now() >= deadline {
                self.signal(Signal::SIGKILL);
                return;
            }
            sleep(POLL).await;
        }
    }
}

/// The exit code that a shell reports.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code();
    let code = code.or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// The signal to the command when lockctl dies before it.
fn death_signal(on_lost: LossAction) -> Option<Signal> {
    match on_lost {
        LossAction::Term => Some(Signal::SIGTERM),
        LossAction::Kill => Some(Signal::SIGKILL),
        LossAction::Ignore => None,
    }
}

/// The running program, even if another one has been installed in its place.
fn own_program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok("/proc/self/exe".into()),
        false => env::current_exe(),
    }
}

/// Becomes the command, if the arguments are those of [`Child::start`]. Returns the exit code if it cannot.
///
/// It does the work between the start of a process and its program: it asks the kernel to signal the command when
/// lockctl dies. This setting survives the replacement of the program.
pub(crate) fn trampoline(arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.skip(1);
    if arguments.next()? != TRAMPOLINE {
        return None;
    }
    let (parent, signal, program) = (arguments.next()?, arguments.next()?, arguments.next()?);
    if let Ok(signal) = signal.to_str()?.parse::<Signal>() {
        ask_to_be_signalled(signal);
    }
    if getppid().to_string() != parent.to_str()? {
        // lockctl died before the request to the kernel.
        return Some(CANNOT_RUN);
    }
    let error = Command::new(&program).args(arguments).exec();
    warn(format_args!("cannot run {program:?}: {error}"));
    Some(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    })
}

#[cfg(target_os = "linux")]
fn ask_to_be_signalled(signal: Signal) {
    if let Err(error) = nix::sys::prctl::set_pdeathsig(signal) {
        warn(format_args!(
            "the command will go on if lockctl is killed: {error}"
        ));
        // The thread that writes ends with this program.
        finish();
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_to_be_signalled(_: Signal) {}

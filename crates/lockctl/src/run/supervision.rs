//! Supervises a command and its lock, until the command has ended.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::future::select_all;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};
use tower_distributed_lock::LockHandle;

use super::child::Child;
use super::signals::ForwardedSignals;
use crate::cli::LossAction;
use crate::messages::warn;

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandEnd {
    pub(super) status: ExitStatus,
    /// Whether lockctl ended it because its lock was lost, or was not renewed in time.
    pub(super) by_loss: bool,
}

/// What becomes of a command that loses its lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossPolicy {
    pub(super) on_lost: LossAction,
    pub(super) grace: Duration,
}

/// Waits for the end of `child`. Passes signals on, and ends it when any of its locks is lost.
///
/// A lock counts as lost when the grace is left of its lease: the command has gone when the lease ends, and the next
/// holder begins.
pub(super) async fn supervise(
    child: &mut Child,
    locks: &[LockHandle],
    policy: LossPolicy,
    signals: &mut ForwardedSignals,
) -> io::Result<CommandEnd> {
    let LossPolicy { on_lost, grace } = policy;
    let mut lost = false;
    let mut kill_at = None;
    loop {
        tokio::select! {
            biased;
            status = child.ended() => {
                let ended = CommandEnd { status: status?, by_loss: lost && on_lost != LossAction::Ignore };
                if ended.by_loss {
                    child.clear(kill_at.unwrap_or_else(Instant::now)).await;
                }
                return Ok(ended);
            }
            signal = signals.next() => child.pass_on(signal),
            lock = first_lost(locks, grace), if !lost => {
                lost = true;
                kill_at = begin_to_end(child, lock, policy);
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                kill_at = None;
                child.signal(Signal::SIGKILL);
            }
        }
    }
}

/// Begins to end the command after a loss. Returns when to kill it.
fn begin_to_end(child: &Child, lock: &LockHandle, policy: LossPolicy) -> Option<Instant> {
    let loss = match lock.is_lost() {
        true => "is lost",
        false => "could not be renewed in time",
    };
    let now = Instant::now();
    let (what, kill_at) = match policy.on_lost {
        LossAction::Term => ("ending the command", Some(now + policy.grace)),
        LossAction::Kill => ("killing the command", Some(now)),
        LossAction::Ignore => ("the command goes on", None),
    };
    warn(format_args!("the lock on {:?} {loss}: {what}", lock.key()));
    if policy.on_lost == LossAction::Term {
        child.signal(Signal::SIGTERM);
    }
    kill_at
}

/// Waits for the first of `locks` that is lost, or nearly.
async fn first_lost(locks: &[LockHandle], grace: Duration) -> &LockHandle {
    let losses = locks.iter().map(|lock| Box::pin(nearly_lost(lock, grace)));
    let ((), first, _) = select_all(losses).await;
    &locks[first]
}

/// Waits until the lock is lost, or `grace` is left of its lease.
async fn nearly_lost(lock: &LockHandle, grace: Duration) {
    loop {
        let deadline = lock.deadline();
        let limit = deadline.checked_sub(grace).unwrap_or(deadline);
        tokio::select! {
            biased;
            () = lock.lost() => return,
            // Unless a renewal has moved the deadline meanwhile.
            () = sleep_until(limit) => if lock.deadline() <= deadline { return },
        }
    }
}

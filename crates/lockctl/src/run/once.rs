//! A command that runs once under an idempotency key.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tower_distributed_lock::work::{Done, OnceError};
use tower_distributed_lock::{Lease, LockError, LockHandle, LockKey, LockRequest};

use super::output::KeptOutput;
use super::signals::ForwardedSignals;
use super::{FinishedCommand, Job, exit_code};
use crate::cli::Remember;
use crate::exit::{Exit, Failure};
use crate::messages::warn;
use crate::print;

/// What the names of the records begin with.
const RECORDS: &str = "idempotency:lockctl";

/// What is remembered of a command that has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RunOutcome {
    code: u8,
    stdout: KeptOutput,
    stderr: KeptOutput,
}

/// Runs the command, or replays what it wrote and its exit code.
pub(super) async fn once(
    job: &Job<'_>,
    name: &str,
    signals: &mut ForwardedSignals,
) -> Result<u8, Failure> {
    let key = LockKey::from_parts(RECORDS, [name]);
    let (begin, begun) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<Option<RunOutcome>>();
    // The command does not run in here: a future that is dropped when the lock is lost cannot end it gracefully.
    let work = async move |lock| {
        // The receivers live until `recorded` is done.
        let _ = begin.send(lock);
        finished.await.ok().flatten().ok_or(())
    };
    let mut recorded = std::pin::pin!(claim(job, key).once(job.args.retention, work));
    let claim = tokio::select! {
        biased;
        claim = begun => claim.expect("the work has begun"),
        done = &mut recorded => return not_run(job, name, done, signals).await,
        stopped = signals.ending() => return Err(stopped),
    };
    let running = async {
        let ran = run(job, claim, signals).await;
        // After an error of the lock of `--key`, nothing is remembered.
        let outcome = ran.as_ref().ok().and_then(|ran| outcome(ran, job));
        // It is gone if the lock was lost.
        let _ = finish.send(outcome);
        ran
    };
    let (ran, recorded) = tokio::join!(running, recorded);
    exit_code(ran?.ended, released(recorded), job.policy.on_lost)
}

fn claim(job: &Job<'_>, key: LockKey) -> LockRequest {
    job.locks
        .lock(key)
        .lease(Lease::Renewed(job.args.lease))
        .wait(job.wait())
}

/// What is to be remembered. A command that was killed has not done its work.
fn outcome(ran: &FinishedCommand, job: &Job<'_>) -> Option<RunOutcome> {
    let [stdout, stderr] = ran.kept.clone()?;
    let code = ran.ended.status.code().filter(|_| !ran.ended.by_loss)?;
    let counts = code == 0 || job.args.remember == Remember::Exit;
    counts.then(|| RunOutcome {
        code: u8::try_from(code).unwrap_or(u8::MAX),
        stdout,
        stderr,
    })
}

/// Runs the command under the claim, and under the lock of `--key` if there is one.
async fn run(
    job: &Job<'_>,
    claim: LockHandle,
    signals: &mut ForwardedSignals,
) -> Result<FinishedCommand, Failure> {
    match &job.args.key {
        Some(key) => job.under(key, Some(claim), signals).await,
        None => job.run_supervised(&[claim], true, signals).await,
    }
}

/// What the end of the claim says of its lock.
fn released(recorded: Result<Done<RunOutcome>, OnceError<()>>) -> Result<(), LockError> {
    match recorded {
        // Nothing was to be remembered.
        Ok(_) | Err(OnceError::Work(())) => Ok(()),
        Err(OnceError::Unconfirmed(error) | OnceError::NotStarted(error)) => Err(error),
        Err(_) => Err(LockError::Lost),
    }
}

/// The command was not run: its outcome is replayed, or is unknown.
async fn not_run(
    job: &Job<'_>,
    name: &str,
    done: Result<Done<RunOutcome>, OnceError<()>>,
    signals: &mut ForwardedSignals,
) -> Result<u8, Failure> {
    match done {
        Ok(done) => {
            // On another thread: a reader that takes nothing is waited for until a signal.
            let replayed = spawn_blocking(move || replay(&done.value));
            tokio::select! {
                biased;
                replayed = replayed => replayed.expect("it does not panic"),
                stopped = signals.ending() => Err(stopped),
            }
        }
        Err(OnceError::NotStarted(error)) => Err(job.not_granted(error)),
        Err(OnceError::Unreadable(_)) => Err(Failure::new(
            Exit::Refused,
            format!("the record of {name:?} is none of lockctl: choose another idempotency key"),
        )),
        Err(_) => Err(Failure::from(LockError::Lost)),
    }
}

fn replay(outcome: &RunOutcome) -> Result<u8, Failure> {
    print(outcome.stdout.bytes())?;
    let _ = io::stderr().write_all(outcome.stderr.bytes());
    if outcome.stdout.is_truncated() || outcome.stderr.is_truncated() {
        warn("the command wrote more than this when it ran");
    }
    Ok(outcome.code)
}

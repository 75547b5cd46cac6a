//! `lockctl run`: a command under a lock.

use std::iter;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::Instant;
use tower_distributed_lock::{Lease, LockClient, LockError, LockHandle, LockRequest};

mod child;
mod once;
mod output;
mod signals;
mod supervision;

pub(crate) use child::trampoline;
use child::{Child, code_of};
use output::KeptOutput;
use signals::ForwardedSignals;
use supervision::{CommandEnd, LossPolicy, supervise};

use crate::cli::{LossAction, RunArgs};
use crate::connection::Connection;
use crate::exit::{Exit, Failure, with_causes};
use crate::messages::warn;

/// How long the clean-up at the end may take.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// The longest default grace.
const LONGEST_GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: &RunArgs, connection: &Connection) -> Result<u8, Failure> {
    let policy = loss_policy(args)?;
    // Before the lock is taken, so that a later signal does not end lockctl while it holds the lock.
    let mut signals = ForwardedSignals::listen().map_err(|error| {
        Failure::new(Exit::System, format!("cannot listen for signals: {error}"))
    })?;
    let locks = tokio::select! {
        biased;
        stopped = signals.ending() => return Err(stopped),
        locks = connection.client_as(args.announce.as_deref()) => locks?,
    };
    let job = Job::new(args, policy, connection.issues_tokens(), locks);
    let code = match (&args.idempotency_key, &args.key) {
        (Some(name), _) => once::once(&job, name, &mut signals).await,
        (None, Some(key)) => job
            .under(key, None, &mut signals)
            .await
            .map(|ran| code_of(ran.ended.status)),
        (None, None) => Err(Failure::usage("name the lock: --key NAME")),
    };
    // A quorum goes on with a release that its majority has answered. If a store does not answer, what remains there expires
    // with its lease.
    let _ = job.locks.shutdown(CLEAN_UP).await;
    code
}

/// What becomes of the command when a lock is lost.
fn loss_policy(args: &RunArgs) -> Result<LossPolicy, Failure> {
    let on_lost = args.on_lost;
    let grace = match (on_lost, args.grace) {
        (LossAction::Term, None) => (args.lease / 3).min(LONGEST_GRACE),
        // A lease is renewed after a third of it: with a longer grace, a command with a healthy lock would be ended.
        (LossAction::Term, Some(grace)) if grace <= args.lease / 2 => grace,
        (LossAction::Term, Some(_)) => {
            let why = "--grace is longer than half of --lease: shorten it, or lengthen the lease";
            return Err(Failure::usage(why));
        }
        (_, None) => Duration::ZERO,
        (_, Some(_)) => return Err(Failure::usage("--grace is for `--on-lost term`")),
    };
    Ok(LossPolicy { on_lost, grace })
}

/// A command that is to run under locks.
struct Job<'a> {
    args: &'a RunArgs,
    policy: LossPolicy,
    /// Whether grants carry fencing tokens.
    fenced: bool,
    /// Until when it waits, for all its locks; `None`: without limit.
    until: Option<Instant>,
    locks: LockClient,
}

/// A command that has run.
struct FinishedCommand {
    ended: CommandEnd,
    /// What it wrote to its output and its errors, if that is captured.
    kept: Option<[KeptOutput; 2]>,
}

impl<'a> Job<'a> {
    fn new(args: &'a RunArgs, policy: LossPolicy, fenced: bool, locks: LockClient) -> Self {
        Self {
            args,
            policy,
            fenced,
            until: args.wait.and_then(|wait| Instant::now().checked_add(wait)),
            locks,
        }
    }

    /// Runs the command under the lock `key`, and under `claim` if it runs once: then its output is kept. An error if its end
    /// was not confirmed by the lock.
    async fn under(
        &self,
        key: &str,
        claim: Option<LockHandle>,
        signals: &mut ForwardedSignals,
    ) -> Result<FinishedCommand, Failure> {
        let claim_lost = claim.as_ref().map(LockHandle::lost);
        let taken = tokio::select! {
            biased;
            stopped = signals.ending() => return Err(stopped),
            // Another may have run the command meanwhile.
            Some(()) = OptionFuture::from(claim_lost) => return Err(LockError::Lost.into()),
            taken = self.request(key).acquire() => taken,
        };
        let guard = taken.map_err(|error| self.not_granted(error))?;
        if let Some(time) = self.args.hold_at_least {
            guard.hold_at_least(time).await?;
        }
        let captured = claim.is_some();
        let locks: Vec<_> = iter::once(guard.handle()).chain(claim).collect();
        let attended = self.run_supervised(&locks, captured, signals).await;
        // If the command did not begin, how its lock ended does not matter.
        let released = guard.release().await;
        let ran = attended?;
        exit_code(ran.ended, released, self.policy.on_lost)?;
        Ok(ran)
    }

    fn not_granted(&self, error: LockError) -> Failure {
        Failure::from(error).with_code_for(Exit::Busy, self.args.busy_code)
    }

    fn request(&self, key: &str) -> LockRequest {
        let mode = self.args.lock_mode();
        let request = self
            .locks
            .lock(key)
            .mode(mode)
            .lease(Lease::Renewed(self.args.lease))
            .wait(self.wait());
        match self.fenced && mode.is_exclusive() {
            true => request.fenced(),
            false => request,
        }
    }

    /// How long it may wait from now on. Zero is one try.
    fn wait(&self) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map_or(Duration::MAX, left)
    }

    /// Runs the command to its end while all `locks` are held. Its environment names the first. What it writes is kept if its
    /// output is `captured`.
    async fn run_supervised(
        &self,
        locks: &[LockHandle],
        captured: bool,
        signals: &mut ForwardedSignals,
    ) -> Result<FinishedCommand, Failure> {
        let failed = |what: &str, error| Failure::new(Exit::System, format!("{what}: {error}"));
        let mut child = Child::start(&self.args.command, &locks[0], self.policy.on_lost, captured)
            .map_err(|error| failed("cannot start a process", error))?;
        let output = child.passing();
        let ended = supervise(&mut child, locks, self.policy, signals)
            .await
            .map_err(|error| failed("cannot wait for the command", error))?;
        let kept = match output {
            Some(output) => Some(output.finish(signals.ending()).await),
            None => None,
        };
        Ok(FinishedCommand { ended, kept })
    }
}

/// The exit code, from the results of the command and of the lock.
fn exit_code(
    ended: CommandEnd,
    released: Result<(), LockError>,
    on_lost: LossAction,
) -> Result<u8, Failure> {
    let status = ended.status;
    let code = code_of(status);
    if ended.by_loss {
        let why = format!("the command was ended ({status}), because its lock was lost");
        return Err(Failure::new(Exit::Lost, why));
    }
    let Err(error) = released else {
        return Ok(code);
    };
    let came = format!("the command ended ({status}), but {}", with_causes(&error));
    match error {
        _ if on_lost == LossAction::Ignore => {
            warn(came);
            Ok(code)
        }
        LockError::Lost => Err(Failure::new(Exit::Lost, came)),
        _ => Err(Failure::new(Exit::Unconfirmed, came)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use clap::Parser;
    use tokio::time::sleep;
    use tower_distributed_lock::MemoryStore;
    use tower_distributed_lock::error::{StoreError, StoreErrorKind};

    use super::*;
    use crate::cli::{Cli, Command};

    fn exited(code: i32) -> CommandEnd {
        CommandEnd {
            status: ExitStatus::from_raw(code << 8),
            by_loss: false,
        }
    }

    fn silent() -> LockError {
        StoreError::new(StoreErrorKind::Unanswered, "silence").into()
    }

    /// The command of a claim that another process had, of a lock that another process holds.
    #[tokio::test(start_paused = true)]
    async fn the_claim_and_the_lock_are_waited_for_no_longer_than_one_wait() {
        let line = "lockctl run --idempotency-key a --key k --wait 10s true";
        let Command::Run(args) = Cli::parse_from(line.split(' ')).command else {
            panic!("it is `run`");
        };
        let locks = LockClient::new(MemoryStore::new());
        let held = locks.lock("k").await.unwrap();
        let claim = locks.lock("idempotency:lockctl:a").await.unwrap();
        let claimed = async {
            sleep(Duration::from_secs(9)).await;
            claim.release().await.unwrap();
        };
        let begun = Instant::now();
        let policy = loss_policy(&args).unwrap();
        let job = Job::new(&args, policy, false, locks);
        let mut signals = ForwardedSignals::default();
        let (code, ()) = tokio::join!(once::once(&job, "a", &mut signals), claimed);
        assert_eq!(code.unwrap_err().code(), 80);
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        held.release().await.unwrap();
    }

    #[test]
    fn the_code_of_the_command_counts_where_the_lock_is_confirmed() {
        assert_eq!(exit_code(exited(7), Ok(()), LossAction::Term).unwrap(), 7);
        let killed = CommandEnd {
            status: ExitStatus::from_raw(9),
            by_loss: false,
        };
        assert_eq!(exit_code(killed, Ok(()), LossAction::Term).unwrap(), 137);
    }

    #[test]
    fn a_lock_that_is_not_confirmed_is_no_success() {
        let lost = exit_code(exited(0), Err(LockError::Lost), LossAction::Term).unwrap_err();
        assert_eq!(lost.code(), 82);
        let unconfirmed = exit_code(exited(0), Err(silent()), LossAction::Kill).unwrap_err();
        assert_eq!(unconfirmed.code(), 83);
        assert!(unconfirmed.to_string().contains("silence"), "{unconfirmed}");
        assert_eq!(
            exit_code(exited(3), Err(silent()), LossAction::Ignore).unwrap(),
            3
        );
    }

    #[test]
    fn a_command_that_was_ended_has_lost_its_lock_whatever_its_code() {
        let ended = CommandEnd {
            by_loss: true,
            ..exited(0)
        };
        let lost = exit_code(ended, Ok(()), LossAction::Term).unwrap_err();
        assert_eq!(lost.code(), 82);
    }
}

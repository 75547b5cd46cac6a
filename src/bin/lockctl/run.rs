//! `lockctl run`: a command under a lock.

use std::time::Duration;

use tower_distributed_lock::{Lease, LockClient, LockError, LockGuard, LockMode, LockRequest};

mod child;
mod signals;
mod supervision;

pub(crate) use child::trampoline;
use child::{Child, code_of};
use signals::Signals;
use supervision::{Ended, supervise};

use crate::cli::{OnLost, RunArgs};
use crate::connection::Connection;
use crate::exit::{Exit, Failure, sentence};

/// How long what an ended wait has left in the store may take to be taken back.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// The longest grace that is chosen by itself.
const LONGEST_GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: &RunArgs, connection: &Connection) -> Result<u8, Failure> {
    let grace = grace(args)?;
    // Before anything is held: a signal that comes later must not end lockctl with a lock in its hands.
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(Exit::System, format!("cannot listen for signals: {error}"))
    })?;
    let store = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.code()),
        store = connection.store() => store?,
    };
    let fenced = store.issues_tokens();
    let locks = store.client();
    let guard = tokio::select! {
        biased;
        signal = signals.ending() => Err(Ok(signal.code())),
        taken = request(&locks, args, fenced).acquire() => taken.map_err(|error| Err(Failure::from(error))),
    };
    let guard = match guard {
        Ok(guard) => guard,
        Err(outcome) => {
            // What is left of the wait goes with its lease, if the store does not answer.
            let _ = locks.shutdown(CLEAN_UP).await;
            return outcome.map_err(|failure| failure.with_code_for(Exit::Busy, args.busy_code));
        }
    };
    under(guard, args, grace, &mut signals).await
}

fn request(locks: &LockClient, args: &RunArgs, fenced: bool) -> LockRequest {
    let mode = LockMode::from(args.mode);
    let request = locks
        .lock(args.key.as_str())
        .mode(mode)
        .lease(Lease::Renewed(args.lease))
        .wait(args.wait.unwrap_or(Duration::MAX));
    match fenced && mode.is_exclusive() {
        true => request.fenced(),
        false => request,
    }
}

/// How long the command has between TERM and KILL.
fn grace(args: &RunArgs) -> Result<Duration, Failure> {
    match (args.on_lost, args.grace) {
        (OnLost::Term, None) => Ok((args.lease / 3).min(LONGEST_GRACE)),
        // A lease is renewed when a third of it is over: with a longer grace, a healthy command would be ended.
        (OnLost::Term, Some(grace)) if grace <= args.lease / 2 => Ok(grace),
        (OnLost::Term, Some(_)) => Err(Failure::usage(
            "--grace is longer than half of --lease: shorten it, or lengthen the lease",
        )),
        (_, None) => Ok(Duration::ZERO),
        (_, Some(_)) => Err(Failure::usage("--grace is for `--on-lost term`")),
    }
}

/// Runs the command while `guard` holds.
async fn under(
    guard: LockGuard,
    args: &RunArgs,
    grace: Duration,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lock = guard.handle();
    let mut child = match Child::start(&args.command, &lock, args.on_lost) {
        Ok(child) => child,
        Err(error) => {
            // The command has done nothing: how its lock ended does not matter.
            let _ = guard.release().await;
            return Err(Failure::new(
                Exit::System,
                format!("cannot start a process: {error}"),
            ));
        }
    };
    let ended = supervise(&mut child, &lock, args.on_lost, grace, signals).await;
    let ended = ended.map_err(|error| {
        Failure::new(
            Exit::System,
            format!("cannot wait for the command: {error}"),
        )
    })?;
    let released = guard.release().await;
    verdict(&args.key, ended, released, args.on_lost)
}

/// The exit code, after what became of the command and of the lock.
fn verdict(
    key: &str,
    ended: Ended,
    released: Result<(), LockError>,
    on_lost: OnLost,
) -> Result<u8, Failure> {
    let code = code_of(ended.status);
    let came = |error: &LockError| {
        format!(
            "the command ended ({}), but {}",
            ended.status,
            sentence(error)
        )
    };
    match released {
        _ if ended.by_loss => Err(Failure::new(
            Exit::Lost,
            format!(
                "the lock on {key:?} was lost, and the command was ended ({})",
                ended.status
            ),
        )),
        Ok(()) => Ok(code),
        Err(error) if on_lost == OnLost::Ignore => {
            eprintln!("lockctl: {}", came(&error));
            Ok(code)
        }
        Err(error @ LockError::Lost) => Err(Failure::new(Exit::Lost, came(&error))),
        Err(error) => Err(Failure::new(Exit::Unconfirmed, came(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use tower_distributed_lock::{StoreError, StoreErrorKind};

    use super::*;

    fn exited(code: i32) -> Ended {
        Ended {
            status: ExitStatus::from_raw(code << 8),
            by_loss: false,
        }
    }

    fn silent() -> LockError {
        StoreError::new(StoreErrorKind::Unanswered, "silence").into()
    }

    #[test]
    fn the_code_of_the_command_counts_where_the_lock_is_confirmed() {
        assert_eq!(verdict("k", exited(7), Ok(()), OnLost::Term).unwrap(), 7);
        let killed = Ended {
            status: ExitStatus::from_raw(9),
            by_loss: false,
        };
        assert_eq!(verdict("k", killed, Ok(()), OnLost::Term).unwrap(), 137);
    }

    #[test]
    fn a_lock_that_is_not_confirmed_is_no_success() {
        let lost = verdict("k", exited(0), Err(LockError::Lost), OnLost::Term).unwrap_err();
        assert_eq!(lost.code(), 82);
        let unconfirmed = verdict("k", exited(0), Err(silent()), OnLost::Kill).unwrap_err();
        assert_eq!(unconfirmed.code(), 83);
        assert!(unconfirmed.to_string().contains("silence"), "{unconfirmed}");
        assert_eq!(
            verdict("k", exited(3), Err(silent()), OnLost::Ignore).unwrap(),
            3
        );
    }

    #[test]
    fn a_command_that_was_ended_has_lost_whatever_it_says() {
        let ended = Ended {
            by_loss: true,
            ..exited(0)
        };
        let lost = verdict("k", ended, Ok(()), OnLost::Term).unwrap_err();
        assert_eq!(lost.code(), 82);
    }
}

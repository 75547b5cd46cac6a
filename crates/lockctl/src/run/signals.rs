//! The signals that lockctl handles.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Failure;

/// The signals that are forwarded to the command. The others cannot be caught, or are for lockctl itself.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Listens for the signals that are forwarded to the command: by default, for none.
#[derive(Default)]
pub(super) struct ForwardedSignals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl ForwardedSignals {
    /// Begins to listen. On Linux, each of them that is ignored stays ignored, also for the command, as `nohup` requires.
    pub(super) fn listen() -> io::Result<Self> {
        // A lockctl that is started with CHLD ignored would have no exit code of its command: the system would reap it. From here
        // CHLD has a handler, which the command does not inherit.
        drop(unix::signal(SignalKind::child())?);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let heard = PASSED_ON
            .into_iter()
            .filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0);
        let streams = heard.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal as i32))?;
            Ok((signal, stream))
        });
        Ok(Self {
            streams: streams.collect::<io::Result<_>>()?,
        })
    }

    /// The next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the next signal that ends lockctl. USR1 and USR2 are for the command, which does not run yet. Cancel safe.
    pub(super) async fn ending(&mut self) -> Failure {
        loop {
            match self.next().await {
                Signal::SIGUSR1 | Signal::SIGUSR2 => {}
                signal => return Failure::stopped(code_of(signal)),
            }
        }
    }
}

/// The exit code that a shell reports for a process that this signal ended.
fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).expect("signals are small numbers")
}

/// The signals that a process ignores, as bits; the lowest bit is signal 1. Zero if the status has no such line.
fn ignored(status: &str) -> u64 {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status_of_the_process() {
        assert_eq!(
            ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0"),
            0x1001
        );
        assert_eq!(ignored(""), 0);
    }

    #[test]
    fn a_signal_has_the_exit_code_of_a_shell() {
        assert_eq!(code_of(Signal::SIGTERM), 143);
    }
}

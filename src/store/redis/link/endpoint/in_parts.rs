//! A byte stream that is read in parts, so that tasks send their next commands while the server works.
//!
//! One read may bring the answers that many tasks wait for, and each of these tasks may send its next command at once. A write
//! for each command costs the client and the server more than the command. One write for all of them leaves the server without
//! work while the tasks run, and the tasks without work while it answers. So the first read takes a few answers, and the tasks
//! that wait for them run before the connection reads more: their commands go out in one write, before those of the others.
//!
//! Measured beside a stock handle in the same run, on two cores shared with the server: 54 thousand pairs of acquire and release a
//! second instead of 47 with 64 tasks, 82 instead of 68 with 256, and no difference with one.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, join, split};

/// The most lines of a script's answer about one key.
const LINES_OF_ONE: usize = 4;

/// How many bytes the first part has at most: eight answers of one digit. Each further part with several answers is twice as long.
const FIRST_PART: usize = 32;

/// The stream, read in parts.
pub(super) fn in_parts<S: AsyncRead + AsyncWrite>(stream: S) -> impl AsyncRead + AsyncWrite {
    let (stream, writes) = split(stream);
    let reads = InParts {
        stream,
        part: FIRST_PART,
        several: false,
    };
    join(reads, writes)
}

/// Delays the read that follows a part with several answers, so that the tasks that wait for them run first.
///
/// No byte waits without a wake-up: a delayed read wakes its task at once, and the next read is not delayed. The Redis client
/// reads before it takes each command. So it reads the further parts when it takes the commands of the first one.
struct InParts<R> {
    stream: R,
    /// How many bytes the next read may take.
    part: usize,
    /// Whether the last read has brought several answers. Then the next one is delayed.
    several: bool,
}

impl<R: AsyncRead + Unpin> AsyncRead for InParts<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if mem::take(&mut self.several) {
            // A task that wakes itself goes behind the others that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = self.part.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        if Pin::new(&mut self.stream)
            .poll_read(cx, &mut part)?
            .is_pending()
        {
            self.part = FIRST_PART;
            return Poll::Pending;
        }
        let read = part.filled().len();
        let lines = part.filled().iter().filter(|byte| **byte == b'\n');
        self.several = lines.count() > LINES_OF_ONE;
        buf.advance(read);
        self.part = match read == most {
            true if self.several => self.part.saturating_mul(2),
            // The rest of one long answer.
            true => usize::MAX,
            false => FIRST_PART,
        };
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;

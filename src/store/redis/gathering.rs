//! A byte stream that writes the commands of several tasks at once.
//!
//! One read may bring the answers that several tasks wait for, and each of these tasks may send its next command at once. The
//! runtime runs the task of the connection right after the first sender, before the others, so that each write would carry
//! one or two commands. A write costs the client and the server more than a command. So after such a read, a write lets the
//! tasks that are ready run first. After a read with a single answer, a write is not delayed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most lines of a script's answer about one key.
const LINES_OF_ONE: usize = 4;

/// Writes to `stream` after the tasks have run that its last read has woken.
///
/// No byte waits without a wake-up: when a write is delayed, the task is woken at once, and the next write is not delayed.
pub(super) struct Gathering<S> {
    stream: S,
    /// Whether the last read has brought several answers.
    several: bool,
    /// Whether the other tasks have run since the last flush.
    gathered: bool,
}

impl<S> Gathering<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            several: false,
            gathered: false,
        }
    }

    /// Lets the tasks that are ready run, once before each flush.
    fn poll_gathered(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.several || self.gathered {
            return Poll::Ready(());
        }
        self.gathered = true;
        // A task that wakes itself goes behind the others that are ready.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let lines = buf.filled()[before..].iter().filter(|byte| **byte == b'\n');
        self.several = lines.count() > LINES_OF_ONE;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_gathered(cx));
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.gathered = false;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_gathered(cx));
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;

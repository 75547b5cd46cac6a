//! What a command writes: passed on, and kept for replays.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// How much of each stream is kept.
const KEPT: usize = 64 * 1024;

/// How long output is waited for after the command's end: what it has left running may hold the stream open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How much a pipe may contain: the largest size that Linux gives one without a privilege.
const PIPE: usize = 1024 * 1024;

/// The first part of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptOutput {
    text: Text,
    /// Whether there was more.
    truncated: bool,
}

/// Most output is text, which is shorter in JSON than bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl Default for Text {
    fn default() -> Self {
        Self::Utf8(String::new())
    }
}

impl KeptOutput {
    fn new(bytes: Vec<u8>, truncated: bool) -> Self {
        let text = match String::from_utf8(bytes) {
            Ok(text) => Text::Utf8(text),
            Err(error) => Text::Bytes(error.into_bytes()),
        };
        Self { text, truncated }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.text {
            Text::Utf8(text) => text.as_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// A stream that is passed on while the command runs.
pub(super) struct Passing {
    task: JoinHandle<KeptOutput>,
    /// Dropped at the command's end.
    running: oneshot::Sender<()>,
}

impl Passing {
    pub(super) fn new<R, W>(from: R, to: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (running, ended) = oneshot::channel();
        let task = tokio::spawn(pass(from, to, ended));
        Self { task, running }
    }

    /// After the command's end: what is kept. Waits until the reader has taken all that the command has written.
    pub(super) async fn finish(self) -> KeptOutput {
        drop(self.running);
        self.task.await.expect("it does not panic")
    }
}

/// Copies until the end, or until the reader has gone: then `from` is closed, and the command learns of it as if it had
/// written there itself. Returns the beginning.
async fn pass<R, W>(mut from: R, mut to: W, mut ended: oneshot::Receiver<()>) -> KeptOutput
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut kept, mut truncated) = (Vec::new(), false);
    let mut buffer = vec![0; 8 * 1024];
    // Set after the command's end: nothing is waited for from then on, and this many bytes are copied at most.
    let mut over = None;
    let mut rest = PIPE;
    while rest > 0 {
        let read = tokio::select! {
            biased;
            _ = &mut ended, if over.is_none() => {
                over = Some(Instant::now() + LAST_WORDS);
                continue;
            }
            read = from.read(&mut buffer) => read,
            () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => break,
        };
        let Ok(length @ 1..) = read else { break };
        let bytes = &buffer[..length];
        if over.is_some_and(|over| over <= Instant::now()) {
            rest = rest.saturating_sub(length);
        }
        let room = (KEPT - kept.len()).min(length);
        kept.extend_from_slice(&bytes[..room]);
        truncated |= room < length;
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    KeptOutput::new(kept, truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_is_passed_on_and_the_beginning_is_kept() {
        let written: Vec<u8> = (0..KEPT + 1000).map(|n| (n % 251) as u8).collect();
        let (to, mut passed_on) = tokio::io::duplex(1 << 20);
        let kept = Passing::new(std::io::Cursor::new(written.clone()), to)
            .finish()
            .await;
        assert_eq!(kept.bytes(), &written[..KEPT]);
        assert!(kept.is_truncated());
        let mut passed = Vec::new();
        passed_on.read_to_end(&mut passed).await.unwrap();
        assert_eq!(passed, written);
    }

    #[test]
    fn output_that_is_no_text_survives_json() {
        for bytes in [b"caf\xc3\xa9\n".to_vec(), vec![0xff, 0, b'a']] {
            let kept = KeptOutput::new(bytes.clone(), false);
            let json = serde_json::to_string(&kept).unwrap();
            let read: KeptOutput = serde_json::from_str(&json).unwrap();
            assert_eq!(read.bytes(), bytes, "{json}");
        }
    }
}

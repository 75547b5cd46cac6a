//! What a command writes: passed on, and kept for replays.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How much of each stream is kept.
const KEPT: usize = 64 * 1024;

/// How long output is waited for after the command's end: what it has left running may hold the stream open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
    /// What was passed on, and whether it was more than is kept.
    seen: Arc<Mutex<(Vec<u8>, bool)>>,
    task: JoinHandle<()>,
}

impl Passing {
    pub(super) fn new<R, W>(from: R, to: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let seen = Arc::<Mutex<(Vec<u8>, bool)>>::default();
        let task = tokio::spawn(pass(from, to, seen.clone()));
        Self { seen, task }
    }

    /// After the command's end: what is kept.
    pub(super) async fn finish(mut self) -> KeptOutput {
        if timeout(LAST_WORDS, &mut self.task).await.is_err() {
            self.task.abort();
        }
        let (bytes, truncated) = &*self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        KeptOutput::new(bytes.clone(), *truncated)
    }
}

/// Copies until the end, or until the reader has gone: then `from` is closed, and the command learns of it as if it had
/// written there itself.
async fn pass<R, W>(mut from: R, mut to: W, seen: Arc<Mutex<(Vec<u8>, bool)>>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..length];
        {
            let (kept, truncated) = &mut *seen.lock().unwrap_or_else(PoisonError::into_inner);
            let room = (KEPT - kept.len()).min(length);
            kept.extend_from_slice(&bytes[..room]);
            *truncated |= room < length;
        }
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
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

//! What a command writes: passed on, and kept for replays.

use std::pin::pin;
use std::time::Duration;

use futures_util::future;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// How much of each stream is kept.
const KEPT: usize = 64 * 1024;

/// How long output is waited for after the command's end: what it has left running may hold the stream open for ever.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// How long the readers may still read after a signal: one that the command got as well must not cost its last output.
const LAST_READ: Duration = Duration::from_secs(1);

/// How much a pipe may contain: the largest size that Linux gives one without a privilege.
const PIPE: usize = 1024 * 1024;

/// The first part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// What the command writes to, and what reads it.
type Source = Box<dyn AsyncRead + Unpin + Send>;
type Reader = Box<dyn AsyncWrite + Unpin + Send>;

/// The streams that are passed on while the command runs.
pub(super) struct Passing {
    streams: [JoinHandle<KeptOutput>; 2],
    stage: watch::Sender<Stage>,
}

/// How long a stream is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The command runs.
    Running,
    /// The command has ended.
    Ended,
    /// The reader is not waited for any more: what the command has written is only kept.
    Unread,
}

impl Passing {
    /// Begins to pass on output and errors of a command.
    pub(super) fn new(streams: [(Source, Reader); 2]) -> Self {
        let (stage, reached) = watch::channel(Stage::Running);
        let pass = |(from, to)| tokio::spawn(pass(from, to, reached.clone()));
        Self {
            streams: streams.map(pass),
            stage,
        }
    }

    /// After the command's end: what is kept. Waits until the readers have taken all that the command has written, or until
    /// a moment after `stop`.
    pub(super) async fn finish(self, stop: impl Future) -> [KeptOutput; 2] {
        let [out, err] = self.streams;
        let mut both = pin!(future::join(out, err));
        self.stage.send_replace(Stage::Ended);
        let stopped = async {
            stop.await;
            sleep(LAST_READ).await;
        };
        let (out, err) = tokio::select! {
            biased;
            both = &mut both => both,
            () = stopped => {
                self.stage.send_replace(Stage::Unread);
                both.await
            }
        };
        [out, err].map(|kept| kept.expect("it does not panic"))
    }
}

/// Copies until the end, or until the reader has gone: then `from` is closed, and the command learns of it as if it had
/// written there itself. Returns the beginning.
async fn pass(mut from: Source, mut to: Reader, mut stage: watch::Receiver<Stage>) -> KeptOutput {
    let (mut kept, mut truncated) = (Vec::new(), false);
    let mut buffer = vec![0; 8 * 1024];
    let mut unread = stage.clone();
    // Set after the command's end: nothing is waited for from then on, and this many bytes are copied at most.
    let mut over = None;
    let mut rest = PIPE;
    while rest > 0 {
        let read = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage >= Stage::Ended), if over.is_none() => {
                over = Some(Instant::now() + LONGEST_FLUSH);
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
        let written = async {
            to.write_all(bytes).await?;
            to.flush().await
        };
        tokio::select! {
            biased;
            _ = unread.wait_for(|stage| *stage == Stage::Unread) => {}
            written = written => if written.is_err() { break },
        }
    }
    KeptOutput::new(kept, truncated)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// A command that writes no errors.
    fn passing(
        from: impl AsyncRead + Unpin + Send + 'static,
        to: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Passing {
        let err: (Source, Reader) = (Box::new(tokio::io::empty()), Box::new(tokio::io::sink()));
        Passing::new([(Box::new(from), Box::new(to)), err])
    }

    #[tokio::test]
    async fn everything_is_passed_on_and_the_beginning_is_kept() {
        let written: Vec<u8> = (0..KEPT + 1000).map(|n| (n % 251) as u8).collect();
        let (to, mut passed_on) = tokio::io::duplex(1 << 20);
        let passing = passing(std::io::Cursor::new(written.clone()), to);
        let [kept, _] = passing.finish(future::pending::<()>()).await;
        assert_eq!(kept.bytes(), &written[..KEPT]);
        assert!(kept.is_truncated());
        let mut passed = Vec::new();
        passed_on.read_to_end(&mut passed).await.unwrap();
        assert_eq!(passed, written);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_waited_for_until_the_stop() {
        let written = vec![b'x'; 20_000];
        let (to, _reader) = tokio::io::duplex(10);
        let passing = passing(std::io::Cursor::new(written.clone()), to);
        let stop = Duration::from_secs(3600);
        let begun = Instant::now();
        let [kept, _] = passing.finish(sleep(stop)).await;
        assert!(begun.elapsed() >= stop, "{:?}", begun.elapsed());
        assert_eq!(kept.bytes(), written);
        assert!(!kept.is_truncated());
    }

    /// The command has left it running, with the output of the command.
    #[tokio::test]
    async fn a_process_that_writes_without_end_is_not_waited_for() {
        let passing = passing(tokio::io::repeat(b'x'), tokio::io::sink());
        let finished = passing.finish(future::pending::<()>());
        let finished = timeout(LONGEST_FLUSH * 20, finished).await;
        let [kept, _] = finished.expect("it ends");
        assert!(kept.is_truncated());
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

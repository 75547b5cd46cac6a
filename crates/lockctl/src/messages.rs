//! Messages on standard error.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::text::harmless;

/// How many messages may wait until they are written. Further ones are dropped.
const WAITING: usize = 64;

/// How long lockctl waits for its last messages to be written.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// The thread that writes, from the first message on. A pipe that is not read, or a terminal that is stopped, blocks this
/// thread alone: the supervision of a command goes on. The mutex protects the writer, which the first message makes and [`finish`]
/// takes.
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

struct Writer {
    texts: SyncSender<String>,
    /// Disconnected when the thread has ended.
    ended: Receiver<Infallible>,
}

impl Writer {
    fn start() -> Self {
        let (texts, waiting) = sync_channel::<String>(WAITING);
        let (running, ended) = channel();
        // Without a thread, `say` writes.
        let _ = thread::Builder::new().spawn(move || {
            let _running = running;
            for text in waiting {
                // `eprint!` panics if it cannot be written.
                let _ = io::stderr().write_all(text.as_bytes());
            }
        });
        Self { texts, ended }
    }
}

fn writer() -> MutexGuard<'static, Option<Writer>> {
    WRITER.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn warn(message: impl Display) {
    // It may have what a server has said.
    write_to_stderr(format_args!(
        "lockctl: {}\n",
        harmless(&message.to_string())
    ));
}

/// Writes a text to standard error, without waiting. It is lost if it cannot be written.
pub(crate) fn write_to_stderr(text: impl Display) {
    let mut writer = writer();
    let texts = &writer.get_or_insert_with(Writer::start).texts;
    if let Err(TrySendError::Disconnected(text)) = texts.try_send(text.to_string()) {
        // The thread could not be started: the machine has too many. This is the message that says so.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Waits a moment until the messages are written.
pub(crate) fn finish() {
    if let Some(Writer { texts, ended }) = writer().take() {
        drop(texts);
        let _ = ended.recv_timeout(LONGEST_FLUSH);
    }
}

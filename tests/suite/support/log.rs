//! The log of one thread.

use std::io::{Result, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Level};

/// Has `tracing` ask all subscribers of the process whether a span or an event is wanted. Call it before a test sets one for
/// its thread.
///
/// While there is one subscriber, `tracing` asks only that of the thread that meets the span first, and remembers the answer.
/// A thread of another test has none: the span is then off for all.
pub(crate) fn ask_all_subscribers() {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
    LazyLock::force(&SECOND);
}

/// What was logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects the log of this thread up to this level, until the guard is dropped.
    pub(crate) fn at(level: Level) -> (Self, DefaultGuard) {
        ask_all_subscribers();
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

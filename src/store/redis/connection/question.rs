//! What is sent at once: one command, or a pipeline.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

/// One command, or two.
pub(super) enum Question<'a> {
    Plain(&'a Cmd),
    /// `ASKING` and a command; the answer to the command counts.
    Asking(Box<Pipeline>),
}

impl<'a> Question<'a> {
    pub(super) fn new(command: &'a Cmd, asking: bool) -> Self {
        if !asking {
            return Self::Plain(command);
        }
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        Self::Asking(Box::new(both))
    }

    pub(super) async fn put(&self, handle: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::Plain(command) => handle.send_packed_command(command).await,
            Self::Asking(both) => {
                // Boxed, so that the future of one command is small.
                let answers = Box::pin(handle.send_packed_commands(both, 1, 1)).await?;
                Ok(answers.into_iter().next().unwrap_or(Value::Nil))
            }
        }
    }
}

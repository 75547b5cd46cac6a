//! A pub/sub connection, for either kind of channel.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use redis::aio::{PubSubSink, PubSubStream};
use redis::{
    ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisResult, RedisWrite, ToRedisArgs,
    Value,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::endpoint::{Endpoint, RawConnection};
use super::failure;
use crate::error::StoreError;

/// The kind of channel (PROTOCOL 1.9). A message of one kind does not reach subscribers of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channels {
    /// `PUBLISH`: every server of a Cluster forwards it to every other.
    Plain,
    /// `SPUBLISH`: only the servers of the channel's slot get it. Redis 7 and newer.
    Sharded,
}

/// The name of the command with which the scripts publish.
impl ToRedisArgs for Channels {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(match self {
            Self::Plain => b"PUBLISH",
            Self::Sharded => b"SPUBLISH",
        });
    }
}

impl Channels {
    /// Opens a connection.
    pub(super) async fn open(
        self,
        endpoint: Endpoint,
    ) -> Result<(ChannelSink, ChannelStream), StoreError> {
        if self == Self::Plain {
            let (sink, stream) = endpoint.open_pubsub().await?.split();
            return Ok((ChannelSink::Plain(sink), ChannelStream::Plain(stream)));
        }
        // RESP3, because only it separates answers from messages, and because the `redis` crate reads messages on sharded
        // channels with RESP3 only.
        let (sender, pushes) = unbounded_channel();
        let connection = endpoint.open_pushing(sender).await?;
        Ok((
            ChannelSink::Sharded(connection),
            ChannelStream::Sharded(pushes),
        ))
    }
}

/// What the server sends without a request.
pub(super) enum ServerMessage {
    /// A message on a channel.
    Message(String),
    /// A subscription has ended, requested or not.
    Gone(String),
}

/// The messages from the server on one connection.
pub(super) enum ChannelStream {
    Plain(PubSubStream),
    Sharded(UnboundedReceiver<PushInfo>),
}

impl ChannelStream {
    /// The next message; `None` when the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<ServerMessage> {
        loop {
            let push = match self {
                Self::Plain(stream) => {
                    let message = stream.next().await?;
                    return Some(ServerMessage::Message(
                        message.get_channel_name().to_owned(),
                    ));
                }
                Self::Sharded(pushes) => pushes.recv().await?,
            };
            let channel = || String::from_utf8_lossy(channel(&push.data)).into_owned();
            match push.kind {
                PushKind::SMessage => return Some(ServerMessage::Message(channel())),
                PushKind::SUnsubscribe => return Some(ServerMessage::Gone(channel())),
                PushKind::Disconnection => return None,
                _ => {}
            }
        }
    }

    /// A message that has arrived already; `None` if there is none.
    pub(super) fn received(&mut self) -> Option<Option<ServerMessage>> {
        self.next().now_or_never()
    }
}

/// The connection cannot be used any more.
pub(super) struct ConnectionLost;

/// The commands to the server on one connection.
pub(super) enum ChannelSink {
    Plain(PubSubSink),
    Sharded(RawConnection),
}

impl ChannelSink {
    /// Subscribes; returns the server's answer for each channel.
    pub(super) async fn join(
        &mut self,
        names: &[Arc<str>],
    ) -> Result<Vec<Result<(), StoreError>>, ConnectionLost> {
        let sink = match self {
            Self::Sharded(connection) => {
                return send_each(connection, &PushKind::SSubscribe, names).await;
            }
            Self::Plain(sink) => sink,
        };
        let all = answered(sink.subscribe(&as_strs(names)).await)?;
        if all.is_ok() || names.len() == 1 {
            return Ok(vec![all; names.len()]);
        }
        // A channel that the user may not read does not stop the others.
        let mut answers = Vec::with_capacity(names.len());
        for name in names {
            answers.push(answered(sink.subscribe(&**name).await)?);
        }
        Ok(answers)
    }

    /// Unsubscribes. A refusal is ignored: the messages of these channels are not read any more.
    pub(super) async fn leave(&mut self, names: &[Arc<str>]) -> Result<(), ConnectionLost> {
        match self {
            Self::Plain(sink) => answered(sink.unsubscribe(&as_strs(names)).await).map(drop),
            Self::Sharded(connection) => {
                let answers = send_each(connection, &PushKind::SUnsubscribe, names);
                answers.await.map(drop)
            }
        }
    }

    /// Checks that the server answers.
    pub(super) async fn ping(&mut self) -> Result<(), ConnectionLost> {
        match self {
            Self::Plain(sink) => answered(sink.ping::<Value>().await).map(drop),
            Self::Sharded(connection) => {
                let ping = redis::cmd("PING");
                match connection.handle.send_packed_command(&ping).await {
                    Ok(Value::SimpleString(_) | Value::ServerError(_)) => Ok(()),
                    _ => Err(ConnectionLost),
                }
            }
        }
    }
}

/// Sends one command for each channel.
///
/// When a server ends a subscription without a request, its message has the form of an answer, and the `redis` crate
/// takes it for the answer to the last command. So an answer that does not fit the command ends the connection.
async fn send_each(
    connection: &mut RawConnection,
    expected: &PushKind,
    names: &[Arc<str>],
) -> Result<Vec<Result<(), StoreError>>, ConnectionLost> {
    let command = match expected {
        PushKind::SUnsubscribe => "SUNSUBSCRIBE",
        _ => "SSUBSCRIBE",
    };
    let mut commands = Pipeline::with_capacity(names.len());
    for name in names {
        commands.cmd(command).arg(&**name);
    }
    let answers = connection
        .handle
        .send_packed_commands(&commands, 0, names.len());
    let answers = answers.await.map_err(|_| ConnectionLost)?;
    let fits = answers
        .into_iter()
        .zip(names)
        .map(|(answer, name)| match answer {
            Value::Push { kind, data }
                if kind == *expected && channel(&data) == name.as_bytes() =>
            {
                Ok(Ok(()))
            }
            Value::ServerError(error) => Ok(Err(failure::refusal(error))),
            _ => Err(ConnectionLost),
        });
    fits.collect()
}

fn channel(data: &[Value]) -> &[u8] {
    match data.first() {
        Some(Value::BulkString(channel)) => channel,
        _ => b"",
    }
}

fn answered<T>(answer: RedisResult<T>) -> Result<Result<(), StoreError>, ConnectionLost> {
    match answer {
        Ok(_) => Ok(Ok(())),
        Err(error) if is_answer(&error) => Ok(Err(failure::no_connection(error))),
        Err(_) => Err(ConnectionLost),
    }
}

fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn as_strs(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

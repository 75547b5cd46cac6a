//! The address of a server, and how to open connections to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::timeouts::Timeouts;
use crate::error::StoreError;
use crate::store::redis::protocol::failure::{self, accepted};
use access::Access;
use in_parts::in_parts;
use tls::TlsConfig;

pub(crate) mod access;
mod in_parts;
#[cfg(feature = "redis-tls")]
pub(crate) mod tls;
#[cfg(not(feature = "redis-tls"))]
#[path = "endpoint/no_tls.rs"]
pub(crate) mod tls;

/// The length of a connection's queue of commands. When it is full, senders wait.
const BACKLOG: usize = 1024;

/// How long a connection is idle before the kernel asks whether the other host is there, and how long it waits between two such
/// questions.
const IDLE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(1);

/// The address of a server, with credentials and TLS settings. It opens connections and keeps none. The caller sets a time
/// limit.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: Arc<ConnectionInfo>,
    tls: TlsConfig,
    pub(crate) timeouts: Timeouts,
    access: Access,
}

/// Takes in the messages that a server sends without a request. The connection reads no more until it returns.
pub(crate) type OnPush = Arc<dyn AsyncPushSender>;

/// An open connection.
pub(crate) struct RawConnection {
    pub(super) handle: MultiplexedConnection,
    /// Cancelled when the connection has ended, and when another one is to replace it.
    pub(crate) ended: CancellationToken,
    /// The task of the connection. One ends with the other, and then commands without an answer fail.
    pub(super) driver: AbortOnDropHandle<()>,
}

impl Endpoint {
    pub(crate) fn new(
        address: ConnectionInfo,
        tls: TlsConfig,
        timeouts: Timeouts,
        access: Access,
    ) -> Self {
        Self {
            address: Arc::new(address),
            tls,
            timeouts,
            access,
        }
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.address.addr()
    }

    /// Another server, which a sentinel or a node of a Cluster has named, with the same settings.
    pub(crate) fn at(&self, address: &Address) -> Self {
        self.reaching(&self.access.reached_at(address))
    }

    /// The server at this address, whatever the map of addresses says, with the same settings.
    pub(crate) fn reaching(&self, Address { host, port }: &Address) -> Self {
        let (host, port) = (host.to_string(), *port);
        let address = match self.address.addr() {
            // Neither of the other two is ever set: `tls` refuses them.
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self {
            address: Arc::new(ConnectionInfo::clone(&self.address).set_addr(address)),
            ..self.clone()
        }
    }

    /// The same server, with the credentials of a connection that is opened now.
    pub(crate) async fn with_credentials(mut self) -> Result<Self, StoreError> {
        let settings = self.access.credentials(self.address.redis_settings());
        let settings = settings.await?;
        self.address = Arc::new(ConnectionInfo::clone(&self.address).set_redis_settings(settings));
        Ok(self)
    }

    /// Opens a connection, introduces the store, and asks the first questions. Returns the answer to `HELLO`, and those to the
    /// questions, each of which may be an error. Its task runs on the current runtime.
    ///
    /// Everything is sent together, but as single commands: a server at its connection limit says so instead of the first
    /// answer, and ends the connection. The `redis` crate would take this for the answer to its own `AUTH`, and report a wrong
    /// password without the text (`check_resp2_auth` in `connection.rs` of redis-rs 1.8).
    ///
    /// With `on_push` it may subscribe: only RESP3 separates messages from answers. Then the `redis` crate introduces the store,
    /// because it gives messages only to those that it has sent `HELLO` for; it passes the text of a refusal on.
    pub(crate) async fn open(
        &self,
        on_push: Option<&OnPush>,
        questions: &[Cmd],
    ) -> Result<(RawConnection, Value, Vec<Value>), StoreError> {
        let settings = self.address.redis_settings();
        let mut connection = self.connect(on_push).await?;
        let mut commands = Vec::with_capacity(3 + questions.len());
        if on_push.is_none() {
            let user = settings.username();
            let auth = |password| redis::cmd("AUTH").arg(user).arg(password).to_owned();
            commands.extend(settings.password().map(auth));
            let select = || redis::cmd("SELECT").arg(settings.db()).to_owned();
            commands.extend((settings.db() != 0).then(select));
        }
        let must_be_done = commands.len();
        let is_resp3 = settings.protocol().supports_resp3();
        let mut hello = redis::cmd("HELLO");
        if is_resp3 && on_push.is_none() {
            hello.arg(3);
        }
        commands.push(hello);
        commands.extend_from_slice(questions);
        let answers = connection.ask(&commands).await;
        let mut answers = answers.map_err(|error| self.failed(error))?.into_iter();
        for done in answers.by_ref().take(must_be_done) {
            accepted(done)?;
        }
        let mut hello = answers.next().unwrap_or(Value::Nil);
        if is_resp3 {
            hello = accepted(hello)?;
        }
        Ok((connection, hello, answers.collect()))
    }

    /// Opens a connection. Without `on_push`, nothing is sent on it.
    async fn connect(&self, on_push: Option<&OnPush>) -> Result<RawConnection, StoreError> {
        let stream = connect(&self.address, &self.tls, self.timeouts).await;
        let stream = stream.map_err(|error| self.failed(error.into()))?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BACKLOG);
        let Some(on_push) = on_push else {
            return self
                .on_stream(in_parts(stream), RedisConnectionInfo::default(), config)
                .await;
        };
        let settings = self.address.redis_settings().clone();
        let speaking = settings.set_protocol(ProtocolVersion::RESP3);
        let config = config.set_push_sender(on_push.clone());
        self.on_stream(stream, speaking.set_db(0), config).await
    }

    async fn on_stream(
        &self,
        stream: impl Stream + 'static,
        settings: RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<RawConnection, StoreError> {
        // A user with the documented rights may not send the name of the library.
        let settings = settings.set_skip_set_lib_name();
        let opening = MultiplexedConnection::new_with_config(&settings, stream, config);
        let (handle, driver) = opening.await.map_err(|error| self.failed(error))?;
        Ok(RawConnection::new(handle, driver))
    }

    /// The error for a connection that could not be opened. If TLS is the cause, it names the server.
    pub(crate) fn failed(&self, error: RedisError) -> StoreError {
        tls::tls_refusal(&error, self.address()).unwrap_or_else(|| failure::no_connection(error))
    }
}

impl RawConnection {
    /// `driver` is the future that drives the connection.
    pub(crate) fn new(
        handle: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let ended = CancellationToken::new();
        let over = ended.clone().drop_guard();
        let driver = tokio::spawn(async move {
            let _over = over;
            driver.await;
        });
        Self {
            handle,
            ended,
            driver: AbortOnDropHandle::new(driver),
        }
    }

    /// Sends `questions` together. An answer may be an error. A server at its connection limit says so and ends the connection.
    pub(crate) async fn ask(&mut self, questions: &[Cmd]) -> RedisResult<Vec<Value>> {
        let asking = questions.iter().map(async |question| {
            let mut handle = self.handle.clone();
            handle.send_packed_command(question).await
        });
        let mut answers = Vec::with_capacity(questions.len());
        for answer in join_all(asking).await {
            match (answer, answers.last()) {
                (Ok(answer), _) => answers.push(answer),
                (Err(_), Some(Value::ServerError(why))) if failure::is_full(why) => {
                    return Err(why.clone().into());
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(answers)
    }
}

/// A byte stream of any kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A byte stream to the server at `address`: TCP, TLS on TCP, or a Unix socket. It has no time limit.
async fn connect(
    address: &ConnectionInfo,
    tls: &TlsConfig,
    timeouts: Timeouts,
) -> io::Result<Box<dyn Stream>> {
    let tcp = |host, port| tcp(host, port, timeouts);
    match address.addr() {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(tcp(host, *port).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let stream = tcp(host, *port).await?;
            Ok(Box::new(tls.encrypt(host, stream).await?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Connects to the first address of the host that answers.
async fn tcp(host: &str, port: u16, timeouts: Timeouts) -> io::Result<TcpStream> {
    let connecting = tokio::net::lookup_host((host, port))
        .await?
        .map(|address| Box::pin(TcpStream::connect(address)));
    let connecting: Vec<_> = connecting.collect();
    if connecting.is_empty() {
        let text = format!("no address is known for {host}");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let (stream, _) = select_ok(connecting).await?;
    stream.set_nodelay(true)?;
    set_up(&stream, timeouts)?;
    Ok(stream)
}

/// Sets keepalive and user time-out, so that the kernel notices when the other host is gone: sent bytes may stay unacknowledged
/// for as long as a command may take.
fn set_up(stream: &TcpStream, timeouts: Timeouts) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(AGAIN);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(timeouts.response))?;
    Ok(())
}

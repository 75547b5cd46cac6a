//! The address of a server, and how to open connections to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, RedisError,
    RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::failure::{self, refused};
use super::in_parts::InParts;
use super::timeouts::Timeouts;
use super::tls::{self, TlsConfig};
use crate::error::{StoreError, StoreErrorKind};

/// The length of a connection's queue of commands. When it is full, senders wait.
const BACKLOG: usize = 1024;

/// The time limit for answers in the `redis` crate, where callers have limits of their own.
const UNLIMITED: Duration = Duration::from_secs(24 * 3600);

/// How long sent bytes may stay unacknowledged by the other host before the kernel ends the connection, and how long a
/// connection is idle before the kernel asks whether the other host is there.
const SILENCE: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(5);

/// The address of a server, with credentials and TLS settings. It opens connections and keeps none. The caller sets a time
/// limit.
#[derive(Clone)]
pub(super) struct Endpoint {
    address: Arc<ConnectionInfo>,
    tls: TlsConfig,
    pub(super) timeouts: Timeouts,
}

/// Takes in the messages that a server sends without a request. The connection reads no more until it returns.
pub(super) type OnPush = Arc<dyn AsyncPushSender>;

/// An open connection.
pub(super) struct RawConnection {
    pub(super) handle: MultiplexedConnection,
    /// Cancelled when the connection has ended, and when another one is to replace it.
    pub(super) ended: CancellationToken,
    /// The task of the connection. One ends with the other. `None` if a pool of the caller's has made the connection: its
    /// task is not accessible.
    driver: Option<AbortOnDropHandle<()>>,
}

impl Endpoint {
    pub(super) fn new(address: ConnectionInfo, tls: TlsConfig, timeouts: Timeouts) -> Self {
        // Connections do not send the name of the library: a user with the documented rights may not do that.
        let settings = address.redis_settings().clone().set_skip_set_lib_name();
        Self {
            address: Arc::new(address.set_redis_settings(settings)),
            tls,
            timeouts,
        }
    }

    pub(super) fn address(&self) -> &ConnectionAddr {
        self.address.addr()
    }

    /// Another server, with the same settings.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let host = host.to_owned();
        let address = match self.address.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self {
            address: Arc::new(ConnectionInfo::clone(&self.address).set_addr(address)),
            ..self.clone()
        }
    }

    /// Opens a connection, without a time limit for answers. Its task runs on the current runtime. With `on_push` it may
    /// subscribe: only RESP3 separates messages from answers.
    pub(super) async fn open(&self, on_push: Option<&OnPush>) -> Result<RawConnection, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BACKLOG);
        let stream = connect(&self.address, &self.tls).await;
        let stream = stream.map_err(|error| self.failed(error.into()))?;
        let settings = self.address.redis_settings();
        let Some(on_push) = on_push else {
            let stream = InParts::new(stream);
            return self.open_on(stream, settings, config).await;
        };
        let settings = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let config = config.set_push_sender(on_push.clone());
        self.open_on(stream, &settings, config).await
    }

    async fn open_on(
        &self,
        stream: impl Stream + 'static,
        settings: &redis::RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<RawConnection, StoreError> {
        match MultiplexedConnection::new_with_config(settings, stream, config).await {
            Ok((handle, driver)) => {
                let ended = CancellationToken::new();
                let over = ended.clone().drop_guard();
                let driver = tokio::spawn(async move {
                    let _over = over;
                    driver.await;
                });
                Ok(RawConnection {
                    handle,
                    ended,
                    driver: Some(AbortOnDropHandle::new(driver)),
                })
            }
            Err(error) => Err(self.late_refusal(error).await),
        }
    }

    /// The answers to the first questions on a new connection.
    pub(super) async fn first_answers(
        &self,
        connection: &mut RawConnection,
        questions: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        match connection.ask(questions).await {
            Ok(answers) => Ok(answers),
            Err(error) => Err(self.late_refusal(error).await),
        }
    }

    /// The error for a connection that could not be opened. If TLS is the cause, it names the server.
    pub(super) fn failed(&self, error: RedisError) -> StoreError {
        tls::tls_refusal(&error, self.address()).unwrap_or_else(|| failure::no_connection(error))
    }

    /// Why a connection has ended before the first answer: the server may have refused the client's certificate.
    ///
    /// With TLS 1.3 the server refuses only after the client's part of the handshake. Data that the client sends meanwhile
    /// ends the connection with a reset, which may overtake the server's alert. So this opens another connection, on which
    /// the client sends nothing.
    async fn late_refusal(&self, error: RedisError) -> StoreError {
        let error = self.failed(error);
        if error.kind() != StoreErrorKind::Unreachable || !is_encrypted(&self.address) {
            return error;
        }
        let listening = async {
            let mut stream = connect(&self.address, &self.tls).await?;
            stream.read_u8().await
        };
        // A server that accepts the client sends nothing either, so this ends with a time-out.
        match timeout(self.timeouts.response, listening).await {
            Ok(Err(late_refusal)) => {
                tls::tls_refusal(&late_refusal.into(), self.address()).unwrap_or(error)
            }
            _ => error,
        }
    }
}

impl RawConnection {
    /// Wraps a connection that a pool of the caller's has made.
    pub(super) fn given(mut handle: MultiplexedConnection) -> Self {
        handle.set_response_timeout(UNLIMITED);
        Self {
            handle,
            ended: CancellationToken::new(),
            driver: None,
        }
    }

    /// Sends `questions`. An answer may be an error.
    pub(super) async fn ask(&mut self, questions: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = questions.len();
        self.handle.send_packed_commands(questions, 0, count).await
    }

    /// Whether the connection is known to have ended. `false` does not prove that it is open.
    pub(super) fn has_ended(&self) -> bool {
        let driver = self.driver.as_ref();
        driver.is_some_and(|driver| driver.is_finished())
    }
}

/// A byte stream of any kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A byte stream to the server at `address`: TCP, TLS on TCP, or a Unix socket. It has no time limit.
async fn connect(address: &ConnectionInfo, tls: &TlsConfig) -> io::Result<Box<dyn Stream>> {
    match address.addr() {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(tcp(address, host, *port).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let stream = tcp(address, host, *port).await?;
            Ok(Box::new(tls.encrypt(host, stream).await?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Connects to the first address of the host that answers.
async fn tcp(address: &ConnectionInfo, host: &str, port: u16) -> io::Result<TcpStream> {
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
    set_up(address, &stream)?;
    Ok(stream)
}

/// Sets keepalive and user time-out, so that the kernel notices when the other host is gone. Settings in the address
/// override these.
fn set_up(address: &ConnectionInfo, stream: &TcpStream) -> io::Result<()> {
    let (socket, settings) = (SockRef::from(stream), address.tcp_settings());
    let keepalive = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(SILENCE / 2);
    socket.set_tcp_keepalive(settings.keepalive().unwrap_or(&keepalive))?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(settings.user_timeout().unwrap_or(SILENCE)))?;
    Ok(())
}

/// Whether connections to the address use TLS.
pub(super) fn is_encrypted(address: &ConnectionInfo) -> bool {
    matches!(address.addr(), ConnectionAddr::TcpTls { .. })
}

/// The error for an address that cannot be used.
pub(super) fn bad_address(error: RedisError) -> StoreError {
    if error.kind() == redis::ErrorKind::InvalidClientConfig && error.to_string().contains("TLS") {
        return refused(
            "a `rediss://` address needs the feature `redis-tls` of tower-distributed-lock",
        );
    }
    refused(format!(
        "an address cannot be read (a password in it is percent-encoded): {error}"
    ))
}

//! Byte streams to a server: TCP, TLS on TCP, or a Unix socket.

use std::io;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::tls::TlsConfig;

/// How long sent bytes may stay unacknowledged by the other host before the kernel ends the connection, and how long a
/// connection is idle before the kernel asks whether the other host is there.
const SILENCE: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(5);

/// A byte stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to the server at `address`, without a time limit.
pub(super) async fn open(address: &ConnectionInfo, tls: &TlsConfig) -> io::Result<Box<dyn Stream>> {
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

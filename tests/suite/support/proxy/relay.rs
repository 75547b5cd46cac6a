//! One connection through the proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::Ending;
use super::direction::{Direction, Flow};

/// Relays until both directions have ended, one fails, or the test cuts the connection.
pub(super) async fn run(
    client: TcpStream,
    upstream: SocketAddr,
    (requests, replies): (&Direction, &Direction),
    mut cut: watch::Receiver<(u64, Option<Ending>)>,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        return drop(client.set_zero_linger());
    };
    // Nagle's algorithm would add delays that no test sets.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (mut to_client, mut to_server) = (Some(to_client), Some(to_server));

    let traffic = async {
        tokio::try_join!(
            pump(&from_client, &mut to_server, requests),
            pump(&from_server, &mut to_client, replies),
        )
    };
    let ending = tokio::select! {
        biased;
        _ = cut.changed() => cut.borrow().1,
        ended = traffic => ended.is_err().then_some(Ending::Reset),
    };
    if ending == Some(Ending::Silence) {
        let told = |cut: &(u64, Option<Ending>)| cut.1 != Some(Ending::Silence);
        drop(cut.wait_for(told).await);
    }
    if ending == Some(Ending::Reset) {
        // The halves are forgotten because dropping one sends a FIN ahead of the reset.
        let _ = (
            from_client.as_ref().set_zero_linger(),
            from_server.as_ref().set_zero_linger(),
        );
        to_client
            .into_iter()
            .chain(to_server)
            .for_each(OwnedWriteHalf::forget);
    }
}

/// Bytes under way, or the end of the stream.
struct Chunk {
    bytes: Vec<u8>,
    due: Instant,
    caught: bool,
}

/// Reads ahead without bound, so that a slow or held direction never stops the sender from sending.
async fn pump(
    from: &OwnedReadHalf,
    to: &mut Option<OwnedWriteHalf>,
    direction: &Direction,
) -> io::Result<()> {
    let (sender, chunks) = mpsc::unbounded_channel();
    let counted_in = AtomicU64::new(0);
    tokio::try_join!(
        read(from, sender, direction, &counted_in),
        write(chunks, to, direction, &counted_in),
    )
    .map(drop)
}

async fn read(
    from: &OwnedReadHalf,
    chunks: mpsc::UnboundedSender<Chunk>,
    direction: &Direction,
    counted_in: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        from.readable().await?;
        let length = match from.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            read => read?,
        };
        let caught = direction.catch(length, counted_in);
        let bytes = buffer[..length].to_vec();
        // A half-closed direction has no reader any more, and drops the chunks.
        let _ = chunks.send(Chunk {
            bytes,
            due: direction.arrival(),
            caught,
        });
        if length == 0 {
            return Ok(());
        }
    }
}

async fn write(
    mut chunks: mpsc::UnboundedReceiver<Chunk>,
    to: &mut Option<OwnedWriteHalf>,
    direction: &Direction,
    counted_in: &AtomicU64,
) -> io::Result<()> {
    let mut flow = direction.flow.subscribe();
    let mut half_close = direction.flow.subscribe();
    let before = half_close.borrow().half_closed;
    let delivering = async {
        let half = to.as_ref().expect("given away only below");
        while let Some(chunk) = chunks.recv().await {
            sleep_until(chunk.due).await;
            if !chunk.caught {
                direction.catch(chunk.bytes.len(), counted_in);
            }
            if chunk.bytes.is_empty() {
                drop(flow.wait_for(|flow| !flow.held).await);
                break;
            }
            deliver(&chunk.bytes, half, direction, &mut flow).await?;
        }
        Ok(())
    };
    let delivered = tokio::select! {
        // Bytes that were held back when the half was closed are never delivered.
        biased;
        _ = half_close.wait_for(|flow| flow.half_closed != before) => Ok(()),
        delivered = delivering => delivered,
    };
    if delivered.is_ok() {
        // Dropping the half sends the FIN.
        drop(to.take());
    }
    delivered
}

async fn deliver(
    mut bytes: &[u8],
    to: &OwnedWriteHalf,
    direction: &Direction,
    flow: &mut watch::Receiver<Flow>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        drop(flow.wait_for(|flow| !flow.held).await);
        let written = {
            // Written under the lock that `hold` takes, so that nothing passes once it has returned.
            let flow = direction.flow.borrow();
            if flow.held {
                continue;
            }
            to.try_write(bytes)
        };
        match written {
            Ok(length) => {
                direction.passed(length);
                bytes = &bytes[length..];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

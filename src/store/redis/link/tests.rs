use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::error::StoreErrorKind;
use crate::lock::LockKey;
use crate::store::redis::link::address::Address;
use crate::store::redis::link::connector::Connector;
use crate::store::redis::link::context::LinkSettings;
use crate::store::redis::link::endpoint::access::Access;
use crate::store::redis::link::endpoint::tls::Tls;
use crate::store::redis::link::endpoint::{Endpoint, RawConnection};
use crate::store::redis::link::sentinel::{FollowedMaster, Master};
use crate::store::redis::link::timeouts::Timeouts;
use crate::store::redis::protocol::names::Name;
use crate::store::redis::protocol::script::Call;

/// That of a server which is not there.
pub(in super::super) fn context() -> Arc<LinkContext> {
    context_with(Timeouts::default())
}

fn context_with(timeouts: Timeouts) -> Arc<LinkContext> {
    let address = "redis://127.0.0.1:1".into_connection_info().unwrap();
    let tls = Tls::default().config([&address]).unwrap();
    let connector = Connector::Server(Endpoint::new(address, tls, timeouts, Access::default()));
    let settings = LinkSettings {
        replicas: 0,
        background: Arc::default(),
        channels: None,
    };
    LinkContext::new(connector, settings)
}

fn link() -> Arc<Link> {
    Link::new(&context(), Purpose::Commands, None)
}

/// A connection that an attempt to connect has just opened, and its other end.
pub(in super::super) async fn opened() -> (Wire, DuplexStream) {
    let (near, far) = duplex(64);
    let (opened, driver) = opened_on(near).await;
    tokio::spawn(driver);
    (opened, far)
}

type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection on `stream`, and the future that drives it.
async fn opened_on(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> (Wire, Drive) {
    let settings = RedisConnectionInfo::default();
    let settings = settings
        .set_skip_set_lib_name()
        .set_protocol(ProtocolVersion::RESP2);
    let config = AsyncConnectionConfig::new();
    let opening = MultiplexedConnection::new_with_config(&settings, stream, config);
    let (handle, driver) = opening.await.unwrap();
    let raw = RawConnection::new(handle, std::future::pending());
    let up = telemetry::store::connected(telemetry::store::COMMANDS);
    (Wire::new(raw, None, None, up), Box::pin(driver))
}

/// A stream that ends as soon as something is written to it.
#[derive(Clone, Default)]
struct EndsWhenWritten(Arc<std::sync::Mutex<Written>>);

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    reader: Option<Waker>,
}

impl AsyncRead for EndsWhenWritten {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut written = self.0.lock().unwrap();
        if written.bytes.is_empty() {
            written.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EndsWhenWritten {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut written = self.0.lock().unwrap();
        written.bytes.extend(bytes);
        let reader = written.reader.take();
        drop(written);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls a driver within the call that wakes it, as another thread may do while that call is not over.
struct AtOnce {
    driver: std::sync::Mutex<Option<Drive>>,
    woken: AtomicBool,
}

impl AtOnce {
    fn drive(driver: Drive) {
        let driver = Self {
            driver: std::sync::Mutex::new(Some(driver)),
            woken: AtomicBool::new(false),
        };
        Arc::new(driver).wake();
    }
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        // A call from within a poll leaves the mark to the loop around that poll.
        let Ok(mut running) = self.driver.try_lock() else {
            return;
        };
        while self.woken.swap(false, Ordering::SeqCst) {
            running.take_if(|driver| driver.as_mut().poll(&mut cx).is_ready());
        }
    }
}

async fn has_ended(mut far: DuplexStream) -> bool {
    let end = timeout(Duration::from_secs(60), far.read_u8()).await;
    end.is_ok_and(|end| end.is_err())
}

/// `close` aborts the task, but a caller that connects meanwhile is past its last await.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_opened_while_the_store_ends_is_closed() {
    let link = link();
    let (before, far) = opened().await;
    link.start(Some(before));
    drop(link.wire().await.unwrap());
    assert!(link.is_up());
    link.close();
    assert!(!link.is_up());
    assert!(has_ended(far).await, "the store is gone");

    let (late, far) = opened().await;
    link.start(Some(late));
    assert!(!link.is_up());
    assert!(has_ended(far).await, "the store was gone before");
    let error = link.query(&redis::cmd("PING")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(link.task.lock().is_none(), "no task starts");
}

/// The command is written, and the connection ends, before the caller's first poll has returned. On several threads that
/// is a matter of chance.
#[tokio::test(start_paused = true)]
async fn a_command_that_fails_at_its_first_poll_may_have_been_sent() {
    let link = link();
    let stream = EndsWhenWritten::default();
    let (opened, driver) = opened_on(stream.clone()).await;
    AtOnce::drive(driver);
    link.start(Some(opened));
    drop(link.wire().await.unwrap());

    let command = redis::cmd("PING");
    let answer = link.query(&command).now_or_never();
    let error = answer.expect("it fails at once").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unanswered);
    let written = stream.0.lock().unwrap().bytes.clone();
    assert_eq!(written, command.get_packed_command(), "it is sent once");
}

/// The pause after a connection that lived shortly may be longer than two times the limit for connecting.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_a_connection_that_is_opened_after_a_pause() {
    let (wire, _far) = opened().await;
    let timeouts = Timeouts {
        connect: Duration::from_millis(50),
        ..Timeouts::default()
    };
    let link = Link::new(&context_with(timeouts), Purpose::Commands, None);
    let opening = async {
        tokio::time::sleep(Backoff::LONGEST).await;
        drop(link.set(State::Up(Arc::new(wire))));
    };
    let (opened, ()) = tokio::join!(link.opened(), opening);
    assert!(opened.is_ok());
}

/// The credentials of the connection have expired. In a Cluster, the caller takes in the error.
#[tokio::test(start_paused = true)]
async fn a_connection_on_which_the_server_wants_a_password_is_replaced() {
    let link = link();
    let (opened, far) = opened().await;
    link.start(Some(opened));
    let wire = link.wire().await.unwrap();
    tokio::time::advance(Backoff::LONGEST * 2).await;
    let key = LockKey::new("k");
    let call = Call::about("GET", Name::lock(&key));
    let answer = link.answer(&call, false);
    let (answer, ()) = tokio::join!(answer, wants_a_password(far));
    assert!(matches!(answer, Ok((Value::ServerError(_), _))));
    assert!(wire.has_ended());
}

/// Answers one command.
pub(in super::super) async fn wants_a_password(mut far: DuplexStream) {
    assert!(far.read(&mut [0; 64]).await.unwrap() > 0);
    let answer = b"-NOAUTH Authentication required.\r\n";
    far.write_all(answer).await.unwrap();
}

/// A command without an answer keeps the connection for seconds.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_to_be_replaced_is_not_used_while_a_command_keeps_it() {
    let link = link();
    let (before, _far) = opened().await;
    link.start(Some(before));
    let kept = link.wire().await.unwrap();
    kept.end("another server is the master");
    assert!(kept.has_ended() && !link.is_up());
    assert_eq!(kept.why(), "another server is the master");
}

/// A connection to the new master may have been opened before: its replicas count, and not those of the former one.
#[test]
fn a_connection_to_a_master_that_is_replaced_meanwhile_is_not_used() {
    let [former, new] = [(6379, 3), (6380, 4)].map(|(port, epoch)| Master {
        address: Address::new("localhost", port),
        epoch,
    });
    let current = watch::Sender::new(Some(former.clone()));
    for moves in [false, true] {
        let master = FollowedMaster::new(former.clone(), current.subscribe());
        if moves {
            current.send_replace(Some(new.clone()));
        }
        assert_eq!(master.unwrap().is_replaced(), moves);
    }
}

/// The text is sent by the first of those that find out, and again when the server has forgotten it since.
#[tokio::test(start_paused = true)]
async fn the_text_of_a_script_is_sent_by_one_of_many_callers() {
    let (opened, _far) = opened().await;
    let call = crate::store::redis::protocol::rights::question(None);
    let began = Instant::now();
    assert!(opened.must_load(&call, began), "the first");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!opened.must_load(&call, began - Duration::from_millis(1)));
    let again = Instant::now();
    assert!(opened.must_load(&call, again), "forgotten since");
}

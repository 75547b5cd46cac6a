use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;

use super::*;

/// Counts the writes to a stream.
struct Counting(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

const TASKS: usize = 16;
const ROUNDS: usize = 50;

/// Answers all commands of a round at once. Each is `PING` and has one line with a dollar sign.
async fn answer_in_rounds(mut far: DuplexStream) {
    let (mut asked, mut chunk) = (0, [0; 4096]);
    while let Ok(read @ 1..) = far.read(&mut chunk).await {
        asked += chunk[..read].iter().filter(|byte| **byte == b'$').count();
        if asked == TASKS {
            asked = 0;
            far.write_all(":1\r\n".repeat(TASKS).as_bytes())
                .await
                .unwrap();
        }
    }
}

/// A runtime of several threads runs the task that was woken last before the others, also with one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tasks_whose_answers_arrive_together_send_by_one_write() {
    let (near, far) = duplex(64 * 1024);
    let writes = Arc::new(AtomicUsize::new(0));
    let settings = RedisConnectionInfo::default();
    let settings = settings
        .set_skip_set_lib_name()
        .set_protocol(ProtocolVersion::RESP2);
    let stream = Gathering::new(Counting(near, writes.clone()));
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let opening = MultiplexedConnection::new_with_config(&settings, stream, config);
    let (handle, driver) = opening.await.unwrap();
    tokio::spawn(driver);
    tokio::spawn(answer_in_rounds(far));

    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mut handle = handle.clone();
        tasks.spawn(async move {
            let ping = redis::cmd("PING");
            for _ in 0..ROUNDS {
                handle.send_packed_command(&ping).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let writes = writes.load(Ordering::Relaxed);
    // Those of the first round are not gathered.
    assert!(
        writes < ROUNDS + TASKS,
        "{writes} writes for {ROUNDS} rounds"
    );
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_write_is_delayed_once_and_only_after_several_answers() {
    let (near, mut far) = duplex(1024);
    let mut stream = Gathering::new(near);
    let woken = Arc::new(CountingWaker::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let several = ":1\r\n".repeat(LINES_OF_ONE + 1);
    // The refusal of an attempt has the most lines of an answer to one script.
    let refusal = "*3\r\n:1\r\n:29999\r\n:1\r\n";
    for (answers, delayed) in [(refusal, 0), (several.as_str(), 1), (":0\r\n", 0)] {
        far.write_all(answers.as_bytes()).await.unwrap();
        stream
            .read_exact(&mut vec![0; answers.len()])
            .await
            .unwrap();
        let before = woken.0.load(Ordering::Relaxed);
        for _ in 0..delayed {
            assert!(pin!(stream.write_all(b"x")).poll(&mut cx).is_pending());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed) - before, delayed);
        // Both parts of a write, if the other side takes only one at a time.
        assert!(pin!(stream.write_all(b"y")).poll(&mut cx).is_ready());
        assert!(pin!(stream.write_all(b"z")).poll(&mut cx).is_ready());
        assert!(pin!(stream.flush()).poll(&mut cx).is_ready());
    }
}

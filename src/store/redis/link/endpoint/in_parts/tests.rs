use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker, ready};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;

use super::*;
use crate::sync::Mutex;

/// What was done with a stream: so many bytes were read, or written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Read(usize),
    Wrote(usize),
}

/// Records the reads and writes of a stream.
struct Recorded(DuplexStream, Arc<Mutex<Vec<Done>>>);

impl Recorded {
    fn new(stream: DuplexStream) -> (Self, Arc<Mutex<Vec<Done>>>) {
        let done = Arc::new(Mutex::new(Vec::new()));
        (Self(stream, done.clone()), done)
    }
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        self.1.lock().push(Done::Read(buf.filled().len() - before));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.0).poll_write(cx, buf))?;
        self.1.lock().push(Done::Wrote(wrote));
        Poll::Ready(Ok(wrote))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

const ROUNDS: usize = 50;
const ANSWER: &str = ":1\r\n";

/// Answers all commands of a round, one of each task, at once. Each is `PING` and has one line with a dollar sign.
async fn answer_in_rounds(mut far: DuplexStream, tasks: usize) {
    let (mut asked, mut chunk) = (0, [0; 4096]);
    while let Ok(read @ 1..) = far.read(&mut chunk).await {
        asked += chunk[..read].iter().filter(|byte| **byte == b'$').count();
        if asked == tasks {
            asked = 0;
            far.write_all(ANSWER.repeat(tasks).as_bytes())
                .await
                .unwrap();
        }
    }
}

/// A runtime of several threads runs the task that was woken last before the others, also with one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_tasks_of_a_part_send_by_one_write_while_others_have_no_answer_yet() {
    // The answers to 24 fill two parts.
    for (tasks, parts) in [(24, [8, 16]), (32, [8, 24])] {
        let writes = commands_of_each_write(tasks).await;
        // The tasks of the first part send before the others have their answers.
        assert_eq!(writes, parts.repeat(ROUNDS - 1), "{tasks} tasks");
    }
}

/// How many commands each write has, after the first round, whose tasks nothing has woken together.
async fn commands_of_each_write(count: usize) -> Vec<usize> {
    let (near, far) = duplex(64 * 1024);
    let (stream, done) = Recorded::new(near);
    let settings = RedisConnectionInfo::default();
    let settings = settings
        .set_skip_set_lib_name()
        .set_protocol(ProtocolVersion::RESP2);
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let stream = in_parts(stream);
    let opening = MultiplexedConnection::new_with_config(&settings, stream, config);
    let (handle, driver) = opening.await.unwrap();
    tokio::spawn(driver);
    tokio::spawn(answer_in_rounds(far, count));

    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let mut handle = handle.clone();
        tasks.spawn(async move {
            let ping = redis::cmd("PING");
            for _ in 0..ROUNDS {
                handle.send_packed_command(&ping).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let done = done.lock().clone();
    let command = redis::cmd("PING").get_packed_command().len();
    let first = done.iter().position(|done| matches!(done, Done::Read(_)));
    let writes = done[first.unwrap()..].iter().filter_map(|done| match done {
        Done::Wrote(bytes) => Some(bytes / command),
        Done::Read(_) => None,
    });
    writes.collect()
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_read_is_delayed_once_and_only_after_several_answers() {
    let (near, mut far) = duplex(1024);
    let mut stream = in_parts(near);
    let woken = Arc::new(CountingWaker::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let several = ANSWER.repeat(LINES_OF_ONE + 1);
    // The refusal of an attempt has the most lines of an answer to one script.
    let refusal = "*3\r\n:1\r\n:29999\r\n:1\r\n";
    for (answers, delayed) in [(refusal, 0), (several.as_str(), 1), (":0\r\n", 0)] {
        far.write_all(answers.as_bytes()).await.unwrap();
        let mut read = vec![0; answers.len()];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(read, answers.as_bytes());
        far.write_all(b"x").await.unwrap();
        let before = woken.0.load(Ordering::Relaxed);
        for _ in 0..delayed {
            assert!(pin!(stream.read_u8()).poll(&mut cx).is_pending());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed) - before, delayed);
        assert!(pin!(stream.read_u8()).poll(&mut cx).is_ready());
    }
}

#[tokio::test]
async fn a_long_answer_is_read_in_two_parts() {
    let (near, mut far) = duplex(1 << 20);
    let (stream, done) = Recorded::new(near);
    let mut stream = in_parts(stream);
    let long = vec![b'a'; 1 << 16];
    for _ in 0..2 {
        done.lock().clear();
        far.write_all(&long).await.unwrap();
        let mut read = vec![0; 1 << 17];
        let mut filled = 0;
        while filled < long.len() {
            filled += stream.read(&mut read[filled..]).await.unwrap();
        }
        assert_eq!(read[..filled], long);
        let rest = long.len() - FIRST_PART;
        assert_eq!(*done.lock(), [Done::Read(FIRST_PART), Done::Read(rest)]);
    }
}

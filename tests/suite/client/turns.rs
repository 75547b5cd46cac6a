//! Four processes that want one key all the time.

use std::fmt;
use std::future::poll_fn;
use std::str::FromStr;
use std::task::Poll;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use super::client;
use crate::support::{Console, Peer, RedisServer};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const CONTEST: Duration = Duration::from_secs(6);

/// One hold, in nanoseconds of the clock that all processes of the machine share.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// A time before the request.
    asked: u64,
    /// A time at which it was certainly in its process's queue.
    queued: u64,
    came: u64,
    went: u64,
    token: u64,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            queued,
            came,
            went,
            token,
        } = self;
        write!(f, "{asked} {queued} {came} {went} {token}")
    }
}

impl FromStr for Turn {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let numbers = line.split(' ').map(|number| number.parse().map_err(drop));
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        let [asked, queued, came, went, token] = numbers[..] else {
            return Err(());
        };
        Ok(Self {
            asked,
            queued,
            came,
            went,
            token,
        })
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("there is such a clock");
    let now = Duration::new(
        now.tv_sec().cast_unsigned(),
        u32::try_from(now.tv_nsec()).unwrap(),
    );
    u64::try_from(now.as_nanos()).expect("not that old")
}

/// The role: takes the lock repeatedly, in several tasks, until the test ends it; then reports every turn.
pub(crate) async fn contender(mut console: Console) {
    let locks = client(console.hear().await).await;
    drop(locks.lock("elsewhere").fenced().await.expect("free"));
    console.say("ready");
    let end: u64 = console.hear().await.parse().expect("an instant");
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mut turns = Vec::new();
            while now() < end {
                let asked = now();
                let mut asking = locks.lock("n").fenced().into_future();
                let first = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
                let queued = now();
                let guard = match first {
                    Poll::Ready(granted) => granted.expect("granted"),
                    Poll::Pending => asking.await.expect("granted"),
                };
                let came = now();
                let token = guard.fencing_token().expect("asked for").value();
                // A little work, so that the other tasks of the process ask again before it ends.
                tokio::time::sleep(Duration::from_millis(3)).await;
                let went = now();
                guard.release().await.expect("held");
                turns.push(Turn {
                    asked,
                    queued,
                    came,
                    went,
                    token,
                });
            }
            turns
        });
    }
    for turn in tasks.join_all().await.into_iter().flatten() {
        console.say(turn);
    }
    console.say("done");
}

/// The turns of each process, in order.
async fn contest() -> Vec<Vec<Turn>> {
    let redis = RedisServer::start().await;
    let mut peers: Vec<_> = (0..PROCESSES).map(|_| Peer::start("contender")).collect();
    for peer in &mut peers {
        peer.tell(redis.url());
    }
    for peer in &mut peers {
        assert_eq!(peer.hear().await, "ready");
    }
    let end = now() + u64::try_from(CONTEST.as_nanos()).unwrap();
    for peer in &mut peers {
        peer.tell(end);
    }
    let mut all = Vec::new();
    for peer in &mut peers {
        let mut turns = Vec::new();
        loop {
            let line = peer.hear().await;
            match line.parse() {
                Ok(turn) => turns.push(turn),
                Err(()) => break assert_eq!(line, "done"),
            }
        }
        turns.sort_by_key(|turn: &Turn| turn.came);
        all.push(turns);
    }
    all
}

#[tokio::test]
async fn hand_over_lets_no_process_overlap_starve_or_overtake() {
    let all = contest().await;
    let shares: Vec<_> = all.iter().map(Vec::len).collect();
    let total: usize = shares.iter().sum();
    println!("turns of each process: {shares:?}");
    assert!(total > 100, "nearly nothing was done: {shares:?}");

    let mut turns: Vec<_> = all.iter().flatten().copied().collect();
    turns.sort_by_key(|turn| turn.came);
    for pair in turns.windows(2) {
        assert!(pair[0].went <= pair[1].came, "overlap: {pair:?}");
        assert!(pair[0].token < pair[1].token, "tokens fell: {pair:?}");
    }
    for turns in &all {
        // Of the later turns, the one that queued first.
        let mut earliest = u64::MAX;
        for turn in turns.iter().rev() {
            assert!(turn.asked <= earliest, "overtook another: {turn:?}");
            earliest = earliest.min(turn.queued);
        }
    }
    for share in &shares {
        // One that starves gets a turn for each task when the others have ended.
        assert!(*share > 4 * TASKS, "starved: {shares:?}");
    }
}

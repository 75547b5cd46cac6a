//! Eight tasks of one process of ours and eight threads of one Redisson want the same lock all the time.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;
use tower_distributed_lock::{LockClient, Owner};

use super::redisson::Version;
use super::{Kind, LEASE, Meeting, Party};

const TIME: Duration = Duration::from_secs(4);
const EACH: usize = 8;

/// The sections of one side.
#[derive(Debug, Default)]
struct Share {
    sections: usize,
    worst_wait: Duration,
}

/// While threads of Redisson wait, a turn of ours is two sections, and they have the time to take the lock after it. After a
/// section of theirs, whichever asks first takes the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_language_gets_its_turns() {
    let meeting = Meeting::open().await;
    for (kind, work) in [
        (Kind::Reentrant, Duration::ZERO),
        (Kind::Write, Duration::ZERO),
        (Kind::Reentrant, Duration::from_millis(1)),
        (Kind::Write, Duration::from_millis(1)),
    ] {
        let [ours, theirs] = contest(&meeting, kind, work).await;
        println!("{kind} {work:?}: ours {ours:?}, theirs {theirs:?}");
        for side in [&ours, &theirs] {
            // A side that starves gets a section for each of its tasks when the others have ended.
            assert!(side.sections > 4 * EACH, "ours {ours:?}, theirs {theirs:?}");
        }
    }
}

async fn contest(meeting: &Meeting, kind: Kind, work: Duration) -> [Share; 2] {
    let name = meeting.name();
    let locks = LockClient::new(meeting.store());
    let ours = (0..EACH).map(|_| Party::Rust(locks.clone(), Owner::new()));
    let theirs = (0..EACH).map(|_| meeting.java(Version::V4_7));
    let over = Instant::now() + TIME;
    let contenders = ours.chain(theirs).map(|party| {
        let name = name.clone();
        tokio::spawn(async move {
            let mut share = Share::default();
            while Instant::now() < over {
                let asked = Instant::now();
                let held = party.lock(kind, &name, LEASE).await;
                share.worst_wait = share.worst_wait.max(asked.elapsed());
                share.sections += 1;
                sleep(work).await;
                held.release().await;
            }
            (party.is_java(), share)
        })
    });
    let mut shares = [Share::default(), Share::default()];
    for end in join_all(contenders).await {
        let (is_java, one) = end.expect("it does not panic");
        let side = &mut shares[usize::from(is_java)];
        side.sections += one.sections;
        side.worst_wait = side.worst_wait.max(one.worst_wait);
    }
    meeting.nothing_is_left([&name]).await;
    shares
}

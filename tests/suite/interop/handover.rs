//! A release wakes waiters of the other language, long before they would poll.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, Fencing, HoldStatus, LockStore, Outcome};
use tower_distributed_lock::{Lease, RedisStore};
use uuid::Uuid;

use super::redisson::Version;
use super::{Held, Kind, LEASE, Meeting, Party};

/// The kind of the held lock, and the kind that waits for it.
pub(super) const CONTESTS: [(Kind, Kind); 6] = [
    (Kind::Reentrant, Kind::Reentrant),
    (Kind::Fair, Kind::Fair),
    (Kind::Fenced, Kind::Fenced),
    (Kind::Read, Kind::Write),
    (Kind::Write, Kind::Write),
    (Kind::Write, Kind::Read),
];

/// A request that waits this long was not woken.
pub(super) const LONG: Duration = Duration::from_secs(30);

struct HandOver {
    holder: Party,
    waiter: Party,
    held: Kind,
    wanted: Kind,
    name: String,
}

#[tokio::test]
async fn a_release_wakes_the_other_language() {
    let meeting = Meeting::open().await;
    let hand_overs = all(&meeting);
    let names = || hand_overs.iter().map(|hand_over| &hand_over.name);

    let holds = join_all(hand_overs.iter().map(|hand_over| {
        let lease = Lease::Fixed(LONG);
        hand_over
            .holder
            .lock(hand_over.held, &hand_over.name, lease)
    }));
    let holds = holds.await;
    let wait = |hand_over: &HandOver| {
        let (waiter, wanted, name) = (
            hand_over.waiter.clone(),
            hand_over.wanted,
            hand_over.name.clone(),
        );
        tokio::spawn(async move {
            let held = waiter.lock(wanted, &name, LEASE).await;
            let since = held.since;
            held.release().await;
            since
        })
    };
    let waits: Vec<_> = hand_overs.iter().map(wait).collect();
    meeting.until_waiting(names().map(|name| (name, 1))).await;

    let released = join_all(holds.into_iter().map(|held| held.release())).await;
    for ((hand_over, released), wait) in hand_overs.iter().zip(released).zip(waits) {
        let since = wait.await.expect("a waiter gets the lock");
        let HandOver {
            holder,
            waiter,
            held,
            wanted,
            name,
        } = hand_over;
        let from = holder.language();
        let to = waiter.language();
        let what = format!("from {from} ({held}) to {to} ({wanted}) on {name}");
        assert!(since >= released, "{what}: granted while it was held");
        let took = since - released;
        assert!(took < LONG / 3, "{what}: {took:?}");
    }
    meeting.nothing_is_left(names()).await;
}

/// L2. A thread of Redisson that was refused and does not sleep yet misses a `1`: it is woken by the `0` that follows. A
/// writer's section that is as short as a round trip meets such threads often.
#[tokio::test]
async fn the_release_of_a_short_write_wakes_every_thread() {
    const ROUNDS: usize = 60;
    let meeting = Meeting::open().await;
    let contests =
        Version::ALL.map(|version| [Kind::Read, Kind::Write].map(|kind| (version, kind)));
    let contests = contests
        .into_iter()
        .flatten()
        .map(async |(version, wanted)| {
            let name = meeting.name();
            let (writer, waiter) = (meeting.rust(), meeting.java(version));
            for round in 0..ROUNDS {
                let held = writer.lock(Kind::Write, &name, Lease::Fixed(LONG)).await;
                let wait = {
                    let (waiter, name) = (waiter.clone(), name.clone());
                    tokio::spawn(async move {
                        let held = waiter.lock(wanted, &name, LEASE).await;
                        let since = held.since;
                        held.release().await;
                        since
                    })
                };
                // About the time until the thread is refused.
                tokio::time::sleep(Duration::from_micros(500 + 100 * (round % 30) as u64)).await;
                let released = held.release().await;
                let took = wait
                    .await
                    .expect("it gets the lock")
                    .saturating_sub(released);
                assert!(
                    took < LONG / 3,
                    "{version:?} {wanted} in round {round}: {took:?}"
                );
            }
            name
        });
    let names = join_all(contests).await;
    meeting.nothing_is_left(names.iter()).await;
}

fn all(meeting: &Meeting) -> Vec<HandOver> {
    let mut hand_overs = Vec::new();
    for (holder, waiter) in meeting.pairs() {
        for (held, wanted) in CONTESTS {
            if !holder.knows(held) || !waiter.knows(wanted) {
                continue;
            }
            hand_overs.extend(meeting.names().map(|name| HandOver {
                // A waiting thread cannot do anything else.
                holder: meeting.another(&holder),
                waiter: meeting.another(&waiter),
                held,
                wanted,
                name,
            }));
        }
    }
    hand_overs
}

/// A client of ours also polls, at least every second. Only the message counts here.
#[tokio::test]
async fn every_release_of_redisson_wakes_us() {
    let meeting = Meeting::open().await;
    let mut releases = Vec::new();
    for version in Version::ALL {
        for (held, wanted) in CONTESTS {
            if version.knows(held) {
                releases.extend(meeting.names().map(|name| (version, held, wanted, name)));
            }
        }
    }
    let heard = releases.iter().map(async |(version, held, wanted, name)| {
        let hold = meeting.java(*version).lock(*held, name, LEASE).await;
        is_heard(&meeting.store(), hold, *wanted, name).await;
    });
    join_all(heard).await;
    meeting
        .nothing_is_left(releases.iter().map(|release| &release.3))
        .await;
}

/// Ends `hold`, whose lock is `wanted`, and waits for the message.
pub(super) async fn is_heard(store: &RedisStore, hold: Held, wanted: Kind, name: &str) {
    let attempt = attempt(wanted, name);
    let refused = store.acquire(&attempt).await.expect("Redis answers");
    assert!(matches!(refused, Outcome::Refused { .. }));
    let subscribed = store.subscribe(&attempt).await;
    let mut wakeups = subscribed.expect("Redis answers");
    hold.release().await;
    let heard = timeout(LONG / 3, wakeups.wait()).await;
    assert_eq!(
        heard,
        Ok(true),
        "{name} ({wanted} is wanted) was released unheard"
    );
    let granted = store.acquire(&attempt).await.expect("Redis answers");
    assert!(matches!(granted, Outcome::Granted { .. }));
    let released = store.release(&attempt.hold, None).await;
    assert_eq!(released.expect("Redis answers").status, HoldStatus::Held);
}

fn attempt(kind: Kind, name: &str) -> Attempt {
    Attempt::new(
        Hold {
            key: name.into(),
            mode: kind.mode(),
            id: HoldId::new(Uuid::new_v4(), 1),
        },
        LONG,
    )
    .patience(LONG)
    .fencing((kind == Kind::Fenced).then(Fencing::default))
}

/// The lease of a writer whose release some threads may miss: they ask again when it is over.
const SHORT: Duration = Duration::from_secs(6);

/// Of several threads of one Redisson that were refused and do not sleep yet, a release wakes one; the others are woken
/// only when they sleep. If our release woke only one waiter per process, half of them would be late.
#[tokio::test]
async fn a_writer_lets_all_readers_of_both_languages_in() {
    let meeting = Meeting::open().await;
    let writers = [
        meeting.one_of_each(),
        [(); 3].map(|()| meeting.rust()).to_vec(),
    ]
    .concat();
    let names: Vec<_> = writers.iter().map(|_| meeting.name()).collect();
    let rounds = writers.iter().zip(&names).map(async |(writer, name)| {
        let (late, readers) = let_all_in(&meeting, writer, name).await;
        if writer.is_java() {
            (0, 0)
        } else {
            (late, readers)
        }
    });
    let rounds = join_all(rounds).await;
    let late: usize = rounds.iter().map(|(late, _)| late).sum();
    let readers: usize = rounds.iter().map(|(_, readers)| readers).sum();
    assert!(late <= readers / 4, "{late} of {readers} readers came late");
    meeting.nothing_is_left(&names).await;
}

/// The number of Redisson's readers that were late, and the number of all of them.
async fn let_all_in(meeting: &Meeting, writer: &Party, name: &String) -> (usize, usize) {
    let hold = writer.lock(Kind::Write, name, Lease::Fixed(SHORT)).await;
    let readers = [meeting.one_of_each(), meeting.one_of_each()].concat();
    let reads = readers.into_iter().map(|reader| {
        let name = name.clone();
        tokio::spawn(async move {
            let held = reader.lock(Kind::Read, &name, Lease::Fixed(LONG)).await;
            (reader.is_java(), held)
        })
    });
    let reads: Vec<_> = reads.collect();
    // Each Redisson, and this test's store.
    meeting.until_waiting([(name, 3)]).await;

    let released = hold.release().await;
    // No reader releases before all are granted.
    let mut together = Vec::new();
    for read in reads {
        together.push(read.await.expect("a reader gets in"));
    }
    let late = |held: &Held| held.since > released + SHORT / 3;
    let javas = || together.iter().filter(|(is_java, _)| *is_java);
    let counts = (
        javas().filter(|(_, held)| late(held)).count(),
        javas().count(),
    );
    for (_, held) in together {
        held.release().await;
    }
    counts
}

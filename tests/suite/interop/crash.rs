//! Processes of either language that are killed while they hold or wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tower_distributed_lock::{Lease, LockClient, RedisStore};

use super::redisson::{Redisson, Version, now};
use super::{Held, Kind, LEASE, Meeting, Party};
use crate::support::{Console, Peer};

/// The lease of killed holders.
const LEASE_OF_THE_DEAD: Duration = Duration::from_secs(2);

/// How long a free lock may remain untaken on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

/// The role: takes the locks that the test names, `<url> <kind> <name>`, and keeps them until it is killed.
pub(crate) async fn hoarder(mut console: Console) {
    let mut guards = Vec::new();
    loop {
        let line = console.hear().await;
        let words: Vec<_> = line.split(' ').collect();
        let [url, kind, name] = words[..] else {
            panic!("`{line}` instead of `<url> <kind> <name>`");
        };
        let store = RedisStore::connect(url).await.expect("Redis is there");
        let locks = LockClient::new(store);
        let lock = Kind::named(kind).expect("a kind").request(&locks, name);
        let guard = lock
            .wait(Duration::MAX)
            .lease(Lease::Renewed(LEASE_OF_THE_DEAD))
            .await;
        guards.push(guard.expect("the lock is granted"));
        console.say("held");
    }
}

/// A process that is going to be killed.
enum Victim {
    Java(Arc<Redisson>),
    Rust(Peer),
}

impl Victim {
    async fn java(meeting: &Meeting, version: Version) -> Self {
        let redisson = Redisson::start(version, meeting.redis(), LEASE_OF_THE_DEAD).await;
        Self::Java(Arc::new(redisson))
    }

    fn rust() -> Self {
        Self::Rust(Peer::start("hoarder"))
    }

    fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::Java(redisson) => redisson.version.kinds(),
            Self::Rust(_) => Kind::ALL.to_vec(),
        }
    }

    async fn lock(&mut self, meeting: &Meeting, kind: Kind, name: &str) {
        match self {
            Self::Java(redisson) => redisson.thread().lock(kind, name, None).await.unwrap(),
            Self::Rust(peer) => {
                peer.tell(format_args!("{} {kind} {name}", meeting.redis().url()));
                assert_eq!(peer.hear().await, "held");
            }
        }
    }

    /// Makes it queue for a lock that is held.
    async fn wait(&mut self, meeting: &Meeting, name: &str) {
        let queued = meeting.queue(name).await.len();
        let kind = Kind::Fair;
        match self {
            Self::Java(redisson) => drop(redisson.thread().lock(kind, name, None)),
            Self::Rust(peer) => peer.tell(format_args!("{} {kind} {name}", meeting.redis().url())),
        }
        meeting.until_queued(name, queued + 1).await;
    }

    fn kill9(&mut self) {
        match self {
            Self::Java(redisson) => redisson.kill9(),
            Self::Rust(peer) => peer.process.kill9(),
        }
    }
}

#[tokio::test]
async fn locks_of_a_killed_java_process_are_free_within_its_lease() {
    let meeting = Meeting::open().await;
    let each = Version::ALL.map(async |version| {
        let victim = Victim::java(&meeting, version).await;
        outlive(&meeting, victim, vec![meeting.rust()]).await;
    });
    join_all(each).await;
}

#[tokio::test]
async fn locks_of_a_killed_rust_process_are_free_within_its_lease() {
    let meeting = Meeting::open().await;
    let heirs = Version::ALL.map(|version| meeting.java(version)).to_vec();
    outlive(&meeting, Victim::rust(), heirs).await;
}

/// The victim holds a lock of each kind, and is killed; each heir waits for each lock, and gets it in time.
async fn outlive(meeting: &Meeting, mut victim: Victim, heirs: Vec<Party>) {
    let mut waits = Vec::new();
    let mut names = Vec::new();
    for kind in victim.kinds() {
        for name in meeting.names() {
            victim.lock(meeting, kind, &name).await;
            let wanted = kind.rival();
            let heirs = heirs.iter().filter(|heir| inherits(heir, wanted));
            let inherit = |heir| (kind, in_turn(meeting.another(heir), wanted, &name));
            let inheriting: Vec<_> = heirs.map(inherit).collect();
            names.push((name.clone(), inheriting.len()));
            waits.extend(inheriting);
        }
    }
    let listeners = names.iter().map(|(name, heirs)| (name, *heirs));
    meeting.until_waiting(listeners).await;
    // Longer than the lease, so it has renewed until now.
    tokio::time::sleep(LEASE_OF_THE_DEAD).await;
    let before = now();
    victim.kill9();
    let killed = now();
    for (kind, wait) in waits {
        let since = wait.await.expect("an heir gets the lock");
        assert!(since >= before, "{kind}: granted while the holder lived");
        let took = since.saturating_sub(killed);
        assert!(took < LEASE_OF_THE_DEAD + SLACK, "{kind}: {took:?}");
    }
    meeting
        .nothing_is_left(names.iter().map(|(name, _)| name))
        .await;
}

/// Whether the heir notices that a holder died. Old fair waiters do not: they compute their sleep from the lease at the time
/// when they queued. If the lease was renewed, they then sleep until a message arrives (PROTOCOL 1.11).
fn inherits(heir: &Party, kind: Kind) -> bool {
    let old = matches!(heir, Party::Java(thread) if thread.redisson.version == Version::V3_15);
    heir.knows(kind) && !(old && kind == Kind::Fair)
}

/// Waits for the lock and releases it; returns when it was granted.
fn in_turn(party: Party, kind: Kind, name: &str) -> JoinHandle<Duration> {
    let name = name.to_owned();
    tokio::spawn(async move {
        let held = party.lock(kind, &name, LEASE).await;
        let since = held.since;
        held.release().await;
        since
    })
}

/// A dead reader excludes no other client after the live readers have released.
#[tokio::test]
async fn a_dead_reader_does_not_outlive_a_living_one() {
    let meeting = Meeting::open().await;
    let name = meeting.name();
    let mut victims = [Victim::java(&meeting, Version::V4_7).await, Victim::rust()];
    let living = [meeting.rust(), meeting.java(Version::V4_7)];
    let mut reads: Vec<Held> = Vec::new();
    for (victim, living) in victims.iter_mut().zip(&living) {
        victim.lock(&meeting, Kind::Read, &name).await;
        reads.push(living.lock(Kind::Read, &name, LEASE).await);
    }
    for victim in &mut victims {
        victim.kill9();
    }
    tokio::time::sleep(LEASE_OF_THE_DEAD + Duration::from_millis(100)).await;
    let writer = meeting.rust();
    for read in reads {
        let refused = writer.try_lock(Kind::Write, &name, Duration::ZERO).await;
        assert!(refused.is_none(), "a living reader is not respected");
        read.release().await;
    }
    let granted = writer.try_lock(Kind::Write, &name, Duration::ZERO).await;
    granted.expect("only the dead are left").release().await;
    meeting.nothing_is_left([&name]).await;
}

/// After the death of the head of a fair queue, the live waiters behind it are granted within seconds, in order.
#[tokio::test]
async fn a_dead_waiter_holds_up_a_fair_queue_for_seconds() {
    // A dead waiter of Redisson blocks the queue until the holder's lease and its own patience (here the watchdog's time) are
    // over; one of ours for 3 s after its last question.
    const LIMIT: Duration = LEASE_OF_THE_DEAD.saturating_mul(2);
    let meeting = Meeting::open().await;
    let victims = [Victim::java(&meeting, Version::V4_7).await, Victim::rust()];
    let names = meeting.names();
    let queues = victims
        .into_iter()
        .zip(&names)
        .map(async |(mut victim, name)| {
            let holder = meeting.rust();
            let lease = Lease::Renewed(LEASE_OF_THE_DEAD);
            let hold = holder.lock(Kind::Fair, name, lease).await;
            victim.wait(&meeting, name).await;
            let mut waits = Vec::new();
            for (queued, waiter) in [meeting.rust(), meeting.java(Version::V4_7)]
                .into_iter()
                .enumerate()
            {
                waits.push(in_turn(waiter, Kind::Fair, name));
                meeting.until_queued(name, queued + 2).await;
            }
            victim.kill9();
            hold.release().await;
            let released = now();
            let mut last = released;
            for wait in waits {
                let since = wait.await.expect("a waiter is served");
                assert!(since >= last, "served out of order");
                last = since;
            }
            let took = last - released;
            assert!(took < LIMIT + SLACK, "served after {took:?}");
        });
    join_all(queues).await;
    meeting.nothing_is_left(&names).await;
}

/// A waiter of ours with unlimited patience dies at the head. Only Redisson waits behind it, and drops it by its score.
#[tokio::test]
async fn a_dead_waiter_of_ours_holds_up_redisson_for_seconds() {
    const LIMIT: Duration = Duration::from_secs(6);
    const KEPT: Duration = Duration::from_secs(8);
    let meeting = Meeting::open().await;
    let names = meeting.names();
    let queues = names.iter().map(async |name| {
        let holder = meeting.rust();
        // Redisson sleeps for the rest of the lease, so this lease is short.
        let lease = Lease::Renewed(LEASE_OF_THE_DEAD);
        let hold = holder.lock(Kind::Fair, name, lease).await;
        let mut victim = Victim::rust();
        victim.wait(&meeting, name).await;
        let java = meeting.java(Version::V4_7);
        let wait = in_turn(java, Kind::Fair, name);
        meeting.until_queued(name, 2).await;
        victim.kill9();
        hold.release().await;
        let released = now();
        let took = wait.await.expect("it is served").saturating_sub(released);
        assert!(took < LIMIT + SLACK, "served after {took:?}");
        // Redisson does not know the keys that say until when the dead one lives. They last for 8 s after its last question,
        // and no less: in a shorter silence it may be the server that stood still (PROTOCOL 1.14).
        tokio::time::sleep((released + KEPT).saturating_sub(now())).await;
    });
    join_all(queues).await;
    meeting.nothing_is_left(&names).await;
}

/// The holder has renewed and dies: an old waiter behind it sleeps until a message arrives (see [`inherits`]). Our waiters
/// behind it send one.
#[tokio::test]
async fn an_old_waiter_that_would_sleep_for_ever_is_woken_by_those_behind_it() {
    let meeting = Meeting::open().await;
    let name = meeting.name();
    let mut holder = Victim::rust();
    holder.lock(&meeting, Kind::Fair, &name).await;
    let mut waits = Vec::new();
    for (queued, waiter) in [meeting.java(Version::V3_15), meeting.rust()]
        .into_iter()
        .enumerate()
    {
        waits.push(in_turn(waiter, Kind::Fair, &name));
        meeting.until_queued(&name, queued + 1).await;
    }
    tokio::time::sleep(LEASE_OF_THE_DEAD * 2).await;
    holder.kill9();
    let killed = now();
    for wait in waits {
        let since = wait.await.expect("a waiter is served");
        let took = since.saturating_sub(killed);
        assert!(took < LEASE_OF_THE_DEAD + SLACK, "served after {took:?}");
    }
    meeting.nothing_is_left([&name]).await;
}

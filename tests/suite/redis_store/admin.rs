//! Administration of locks in Redis, ours and Redisson's.

use redis::AsyncTypedCommands;
use tower_distributed_lock::store::{Holder, Inspect, Inspection};
use tower_distributed_lock::{LockAdmin, LockClient, LockError, LockKey, MemoryStore};

use super::*;
use crate::support::Dump;

/// The id of a Redisson client.
const JAVA: &str = "0b5a3c1e-0000-4000-8000-000000000666";

async fn inspect(store: &RedisStore) -> Inspection {
    store.inspect(&LockKey::new("k")).await.unwrap()
}

async fn forces(store: &RedisStore) -> bool {
    store.force_unlock(&LockKey::new("k")).await.unwrap()
}

fn holder(id: impl ToString, mode: LockMode, count: u64) -> Holder {
    Holder::new(id.to_string(), mode, Duration::ZERO).count(count)
}

/// Checks the holders, and that each has nearly a lease left.
#[track_caller]
fn assert_holders(inspection: &Inspection, expected: &[Holder]) {
    let mut found = inspection.holders.clone();
    found.sort_by_key(|holder| (holder.mode.as_str(), holder.id.clone()));
    for holder in &mut found {
        let remaining = std::mem::take(&mut holder.remaining);
        assert!(remaining <= LEASE && remaining > LEASE - Duration::from_secs(10));
    }
    assert_eq!(found, expected);
}

async fn example<S: Inspect + Clone>(store: S) {
    let locks = LockClient::new(store.clone());
    let admin = LockAdmin::new(store);
    let guard = locks.lock("report").await.unwrap();
    let report = admin.inspect("report").await.unwrap();
    assert!(report.is_held());
    assert!(report.holders[0].id.starts_with(&locks.id().to_string()));
    assert!(admin.force_unlock("report").await.unwrap());
    assert!(!admin.inspect("report").await.unwrap().is_held());
    assert!(!admin.force_unlock("report").await.unwrap());
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
}

#[tokio::test]
async fn an_administrator_sees_and_ends_holds_on_every_store() {
    let (_server, store) = server_and_store().await;
    example(store).await;
    example(MemoryStore::new()).await;
}

#[tokio::test]
async fn holders_and_waiters_are_shown_in_every_mode() {
    let (server, store) = server_and_store().await;
    assert_eq!(inspect(&store).await, Inspection::default());

    let (plain, fair) = (attempt("k", LockMode::Reentrant), || {
        patient("k", LockMode::Fair)
    });
    let queued = [fair(), fair()];
    assert!(asks(&store, &plain).await);
    assert!(!asks(&store, &queued[0]).await && !asks(&store, &queued[1]).await);
    let seen = inspect(&store).await;
    assert_holders(&seen, &[holder(plain.hold.id, LockMode::Reentrant, 1)]);
    assert_eq!(
        seen.waiters,
        queued.map(|waiter| waiter.hold.id.to_string())
    );
    server.connection().await.flushall().await.unwrap();

    let writer = patient("k", LockMode::Write);
    let (reader, next) = (patient("k", LockMode::Read), patient("k", LockMode::Write));
    assert!(asks(&store, &writer).await);
    assert!(!asks(&store, &reader).await && !asks(&store, &next).await);
    let seen = inspect(&store).await;
    assert_holders(&seen, &[holder(writer.hold.id, LockMode::Write, 1)]);
    let waiting = [next.hold.id.to_string(), reader.hold.id.to_string()];
    assert_eq!(seen.waiters, waiting);

    assert!(releases(&store, &writer).await);
    assert!(asks(&store, &reader).await);
    let other = lasting(attempt("k", LockMode::Read), LEASE / 10);
    store.withdraw(&next, false).await.unwrap();
    assert!(asks(&store, &other).await);
    let seen = inspect(&store).await;
    let short = seen
        .holders
        .iter()
        .find(|holder| holder.id == other.hold.id.to_string());
    assert!(
        short.unwrap().remaining <= LEASE / 10,
        "each reader has its own"
    );
    assert_eq!(seen.holders.len(), 2);
    assert_eq!(seen.waiters, [""; 0]);
}

/// A list of waiters that changes with each question would change for ever.
#[tokio::test]
async fn waiters_are_shown_by_their_places_in_any_order_of_their_questions() {
    for mode in [
        LockMode::Reentrant,
        LockMode::Fair,
        LockMode::Read,
        LockMode::Write,
        LockMode::permits(1),
    ] {
        let (_server, store) = server_and_store().await;
        let holding = match mode {
            LockMode::Read => LockMode::Write,
            mode => mode,
        };
        assert!(asks(&store, &attempt("k", holding)).await);
        let waiters = [(); 4].map(|()| patient("k", mode));
        for waiter in &waiters {
            assert!(!asks(&store, waiter).await);
        }
        let shown = waiters.each_ref().map(|one| one.hold.id.to_string());
        for waiter in [2, 0, 3, 1].map(|place| &waiters[place]) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(!asks(&store, waiter).await);
            assert_eq!(inspect(&store).await.waiters, shown, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn redissons_holders_are_shown_with_their_counts_and_lapsed_ones_are_not() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let thread = format!("{JAVA}:7");
    redis.hset("k", &thread, 3).await.unwrap();
    redis.pexpire("k", 29_000).await.unwrap();
    assert_holders(
        &inspect(&store).await,
        &[holder(thread, LockMode::Reentrant, 3)],
    );
    redis.del("k").await.unwrap();

    let (one, two) = (format!("{JAVA}:1"), format!("{JAVA}:2"));
    let fields = [("mode", "read"), (&one, "2"), (&two, "1")];
    redis.hset_multiple("k", &fields).await.unwrap();
    redis.pexpire("k", 29_000).await.unwrap();
    for i in ["1", "2"] {
        let timeout = format!("{{k}}:{one}:rwlock_timeout:{i}");
        redis.pset_ex(timeout, "1", 28_000).await.unwrap();
    }
    assert_holders(&inspect(&store).await, &[holder(one, LockMode::Read, 2)]);
    assert!(forces(&store).await);
    assert_eq!(server.dump().await, Dump::new());

    // Its writer may read as well.
    let write = format!("{two}:write");
    let fields = [("mode", "write"), (&write, "1"), (&two, "1")];
    redis.hset_multiple("k", &fields).await.unwrap();
    redis.pexpire("k", 29_000).await.unwrap();
    let timeout = format!("{{k}}:{two}:rwlock_timeout:1");
    redis.pset_ex(timeout, "1", 28_000).await.unwrap();
    let expected = [LockMode::Read, LockMode::Write].map(|mode| holder(&two, mode, 1));
    assert_holders(&inspect(&store).await, &expected);
    assert!(forces(&store).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn force_ends_any_hold_wakes_its_waiters_and_leaves_nothing() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        for waiting in MODES
            .into_iter()
            .filter(|waiting| waiting.family() == mode.family())
        {
            let (held, waiter) = (attempt("k", mode), patient("k", waiting));
            assert!(!forces(&store).await);
            assert!(asks(&store, &held).await);
            let waits = !asks(&store, &waiter).await;
            assert!(waits || releases(&store, &waiter).await, "readers share");
            let mut wakeups = store.subscribe(&waiter).await.unwrap();
            assert!(forces(&store).await, "{mode:?}");
            if waits {
                woken(&mut wakeups).await;
            }
            assert!(!holds(&store, &held).await && !releases(&store, &held).await);
            assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
            assert_eq!(
                server.dump_without_turns().await,
                Dump::new(),
                "{mode:?} {waiting:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_forced_writer_lets_the_waiting_readers_go_first() {
    let (_server, store) = server_and_store().await;
    let (writer, next) = (attempt("k", LockMode::Write), patient("k", LockMode::Write));
    let reader = patient("k", LockMode::Read);
    assert!(asks(&store, &writer).await);
    assert!(!asks(&store, &reader).await && !asks(&store, &next).await);
    assert!(forces(&store).await);
    assert!(!asks(&store, &next).await);
    assert!(asks(&store, &reader).await);
}

#[tokio::test]
async fn what_is_no_lock_is_neither_shown_nor_deleted() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let conflicts = async || {
        let key = LockKey::new("k");
        let seen = store.inspect(&key).await.unwrap_err();
        let forced = store.force_unlock(&key).await.unwrap_err();
        assert_eq!(seen.kind(), StoreErrorKind::Conflict);
        assert_eq!(forced.kind(), StoreErrorKind::Conflict);
        assert_eq!(server.dump().await.len(), 1);
    };
    redis.set("k", "seven").await.unwrap();
    conflicts().await;
    // A number without an expiry is what Redisson keeps for permits of which none is held.
    redis.set("k", "7").await.unwrap();
    let seen = store.inspect(&LockKey::new("k")).await.unwrap();
    assert!(!seen.is_held() && seen.limit == Some(7));
    assert!(!store.force_unlock(&LockKey::new("k")).await.unwrap());
    assert_eq!(redis.get("k").await.unwrap().as_deref(), Some("7"));
    let thread = format!("{JAVA}:1");
    for (field, value) in [
        ("name", "Ada"),
        ("visits", "7"),
        ("sku:42", "7"),
        (&*thread, "Ada"),
        (&*thread, "-1"),
        (&*thread, "12345678901234567890"),
    ] {
        redis.del("k").await.unwrap();
        redis.hset("k", field, value).await.unwrap();
        conflicts().await;
    }
}

#[tokio::test]
async fn a_hold_that_never_expires_is_shown_as_such_and_can_be_ended() {
    let (server, store) = server_and_store().await;
    let stuck = attempt("k", LockMode::Reentrant);
    assert!(asks(&store, &stuck).await);
    server.connection().await.persist("k").await.unwrap();
    assert_eq!(
        error_kind(&store, &attempt("k", LockMode::Reentrant)).await,
        StoreErrorKind::Conflict
    );
    assert_eq!(inspect(&store).await.holders[0].remaining, Duration::MAX);
    assert!(forces(&store).await);
    assert_eq!(server.dump().await, Dump::new());
}

/// A transaction of Redisson adds its id to the thread's id, and the asynchronous API allows any number as a thread id.
#[tokio::test]
async fn holds_of_transactions_and_of_negative_threads_are_shown_and_ended() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let transaction = "8f14e45fceea167a5a36dedd4bea2543";
    for owner in [
        format!("{JAVA}:42:{transaction}"),
        format!("{JAVA}:-7"),
        format!("{JAVA}:-7:{transaction}"),
    ] {
        redis.hset("k", &owner, 1).await.unwrap();
        redis.pexpire("k", 29_000).await.unwrap();
        let exclusive = holder(&owner, LockMode::Reentrant, 1);
        assert_holders(&inspect(&store).await, &[exclusive]);
        assert!(forces(&store).await);

        let fields = [("mode", "read"), (&*owner, "1")];
        redis.hset_multiple("k", &fields).await.unwrap();
        redis.pexpire("k", 29_000).await.unwrap();
        let timeout = format!("{{k}}:{owner}:rwlock_timeout:1");
        redis.pset_ex(timeout, "1", 29_000).await.unwrap();
        assert_holders(&inspect(&store).await, &[holder(&owner, LockMode::Read, 1)]);
        assert!(!asks(&store, &attempt("k", LockMode::Write)).await);
        assert!(forces(&store).await);
        assert_eq!(server.dump().await, Dump::new(), "{owner}");
    }
    for (field, owner) in [
        (format!("{JAVA}:-7:write"), format!("{JAVA}:-7")),
        (
            format!("{JAVA}:42:write:{transaction}"),
            format!("{JAVA}:42:{transaction}"),
        ),
    ] {
        let fields = [("mode", "write"), (&*field, "1")];
        redis.hset_multiple("k", &fields).await.unwrap();
        redis.pexpire("k", 29_000).await.unwrap();
        assert_holders(&inspect(&store).await, &[holder(owner, LockMode::Write, 1)]);
        assert!(forces(&store).await);
        assert_eq!(server.dump().await, Dump::new(), "{field}");
    }
}

//! Records and administration.

use super::*;

fn record(value: &'static str, retention: Duration) -> Record {
    Record::new(value, retention)
}

fn recorded(store: &MemoryStore) -> Option<Bytes> {
    at_once(store.record(&LockKey::new("key")))
}

const EXCLUDING: [LockMode; 3] = [LockMode::Reentrant, LockMode::Fair, LockMode::Write];

#[tokio::test(start_paused = true)]
async fn a_record_is_there_for_the_next_holder_until_its_retention_is_over() {
    for mode in EXCLUDING {
        let store = MemoryStore::new();
        let (first, second) = (attempt(mode, 1), attempt(mode, 2));
        granted(&store, &first);
        let done = record("done", 60 * SECOND);
        assert_eq!(
            at_once(store.release(&first.hold, Some(&done))).status,
            HoldStatus::Held
        );
        granted(&store, &second);
        assert_eq!(recorded(&store).expect("it is kept"), "done");
        released(&store, &second);
        assert!(!store.is_empty());
        advance(60 * SECOND).await;
        assert_eq!(recorded(&store), None);
        assert!(store.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_hold_records_nothing() {
    for mode in EXCLUDING {
        let store = MemoryStore::new();
        let lapsed = attempt(mode, 1);
        granted(&store, &lapsed);
        advance(LEASE).await;
        let stale = record("stale", SECOND);
        assert_eq!(
            at_once(store.release(&lapsed.hold, Some(&stale))).status,
            HoldStatus::Gone
        );
        assert_eq!(recorded(&store), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_cannot_record_and_goes_on_reading() {
    let store = MemoryStore::new();
    let reader = attempt(LockMode::Read, 1);
    granted(&store, &reader);
    let done = record("done", SECOND);
    let answer = store.release(&reader.hold, Some(&done)).now_or_never();
    let error = answer.expect("it completes when first polled").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert_eq!(check(&store, &reader), HoldStatus::Held);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_records_wakes_like_any_other() {
    let store = MemoryStore::new();
    let (holder, waiter) = (attempt(LockMode::Fair, 1), attempt(LockMode::Fair, 2));
    granted(&store, &holder);
    refused(&store, &waiter, LEASE);
    let mut wakeups = subscribe(&store, &waiter);
    at_once(store.release(&holder.hold, Some(&record("done", SECOND))));
    assert!(woken(&mut wakeups));
}

#[tokio::test(start_paused = true)]
async fn force_ends_every_hold_and_wakes_the_waiters() {
    let key = LockKey::new("key");
    for held in MODES {
        let store = MemoryStore::new();
        assert!(!at_once(store.force_unlock(&key)));
        let wanted = match held {
            LockMode::Read => LockMode::Write,
            mode => mode,
        };
        let (holder, waiter) = (attempt(held, 1), attempt(wanted, 2));
        granted(&store, &holder);
        refused(&store, &waiter, LEASE);
        let mut wakeups = subscribe(&store, &waiter);
        assert!(at_once(store.force_unlock(&key)));
        assert!(woken(&mut wakeups), "{held:?}");
        assert_eq!(
            at_once(store.release(&holder.hold, None)).status,
            HoldStatus::Gone
        );
        granted(&store, &waiter);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_writer_lets_the_waiting_readers_go_first() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Write, 1));
    refused(&store, &attempt(LockMode::Read, 2), LEASE);
    assert!(at_once(store.force_unlock(&LockKey::new("key"))));
    let writer = outcome(&store, &attempt(LockMode::Write, 3));
    assert!(matches!(writer, Outcome::Refused { .. }));
    granted(&store, &attempt(LockMode::Read, 2));
}

#[tokio::test(start_paused = true)]
async fn an_inspection_names_holders_and_waiters_in_order() {
    let name = |n| attempt(LockMode::Fair, n).hold.id.to_string();
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Fair, 1));
    refused(&store, &attempt(LockMode::Fair, 3), LEASE);
    refused(&store, &attempt(LockMode::Fair, 2), LEASE);
    advance(SECOND).await;
    let inspection = at_once(store.inspect(&LockKey::new("key")));
    let holder = &inspection.holders[0];
    assert_eq!((&holder.id, holder.mode), (&name(1), LockMode::Reentrant));
    assert_eq!((holder.count, holder.remaining), (1, LEASE - SECOND));
    assert_eq!(inspection.waiters, [name(3), name(2)]);
}

/// Callers from outside decide how many records there are.
#[tokio::test(start_paused = true)]
async fn the_oldest_records_go_when_the_store_has_no_room_for_more() {
    let store = MemoryStore::with_record_limit(10_000);
    for n in 0..100 {
        let mut work = attempt(LockMode::Reentrant, n);
        work.hold.key = LockKey::new(format!("key {n}"));
        granted(&store, &work);
        let done = Record::new(vec![b'x'; 1000], 60 * SECOND);
        at_once(store.release(&work.hold, Some(&done)));
    }
    let mut kept = Vec::new();
    for n in 0..100 {
        let key = LockKey::new(format!("key {n}"));
        kept.extend(at_once(store.record(&key)).map(|_| n));
    }
    assert!(kept.len() >= 5 && kept.len() <= 10, "{kept:?}");
    assert_eq!(kept.last(), Some(&99));
    assert_eq!(kept.first(), Some(&(100 - kept.len())));
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_a_process_may_be_kept_for_ever() {
    let (store, client) = (MemoryStore::new(), Uuid::nil());
    let process = ProcessInfo::new("host", 7, "orders-api");
    at_once(store.announce(client, &process, Duration::MAX));
    advance(1000 * SECOND).await;
    assert_eq!(at_once(store.processes(&[client])), [Some(process)]);
}

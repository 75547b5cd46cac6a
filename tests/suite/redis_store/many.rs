//! Several keys in one question.

use futures_util::future::join_all;
use tower_distributed_lock::FencingToken;
use tower_distributed_lock::store::{Grant, Record, SeveralOutcome, Want};

use super::*;
use crate::support::Dump;

/// One attempt for each mode, each on its own key; one key has its own hash tag.
fn one_of_each() -> Vec<Attempt> {
    let keys = ["a", "b{tag}", "c", "d"];
    let attempts = keys.into_iter().zip(MODES);
    attempts
        .map(|(key, mode)| fenced(attempt(key, mode), Fencing::default()))
        .collect()
}

/// The tokens of granted attempts.
fn tokens(outcome: SeveralOutcome) -> Vec<Option<FencingToken>> {
    let SeveralOutcome::Granted(grants) = outcome else {
        panic!("{outcome:?}");
    };
    let places = grants.iter().map(|grant| grant.index);
    assert!(places.eq(0..grants.len()), "in order: {grants:?}");
    grants.into_iter().map(|grant| grant.token).collect()
}

fn only(index: usize) -> SeveralOutcome {
    SeveralOutcome::Granted(vec![Grant::new(index, None)])
}

#[tokio::test]
async fn all_are_granted_in_one_script_each_in_its_mode_and_with_its_token() {
    let (server, store) = server_and_store().await;
    let attempts = one_of_each();
    // From here the server knows the script.
    store.acquire_several(&attempts, Want::All).await.unwrap();
    for attempt in &attempts {
        store.withdraw(attempt, false).await.unwrap();
    }

    let monitor = server.monitor().await;
    let tokens = tokens(store.acquire_several(&attempts, Want::All).await.unwrap());
    let calls = monitor.lines().await;
    let calls = calls.iter().filter(|line| !line.contains(" lua] "));
    assert_eq!(calls.count(), 1);

    for (attempt, token) in attempts.iter().zip(tokens) {
        assert_eq!(token.is_some(), attempt.hold.mode != LockMode::Read);
        assert!(holds(&store, attempt).await);
        assert!(releases(&store, attempt).await);
    }
    let left = server.dump().await;
    assert!(
        left.keys()
            .all(|key| key.starts_with("redisson_lock_token:")),
        "{left:?}"
    );
}

#[tokio::test]
async fn all_or_nothing_and_the_first_that_stood_back_is_named() {
    let (server, store) = server_and_store().await;
    for taken in 1..MODES.len() {
        let attempts = one_of_each();
        let holder = attempt(
            attempts[taken].hold.key.clone(),
            match MODES[taken].family() {
                LockFamily::Exclusive => LockMode::Reentrant,
                LockFamily::ReadWrite => LockMode::Write,
                LockFamily::Permits => MODES[taken],
            },
        );
        assert!(asks(&store, &holder).await);
        let SeveralOutcome::Refused { index, retry_after } =
            store.acquire_several(&attempts, Want::All).await.unwrap()
        else {
            panic!("granted beside {holder:?}");
        };
        assert_eq!(index, Some(taken));
        assert!(retry_after <= LEASE && retry_after > LEASE / 2);
        for attempt in &attempts {
            assert!(!holds(&store, attempt).await, "{attempt:?}");
        }
        assert!(releases(&store, &holder).await);
        assert_eq!(server.dump().await, Dump::new());
    }
}

#[tokio::test]
async fn an_error_about_one_key_grants_none() {
    let (server, store) = server_and_store().await;
    let attempts = one_of_each();
    for (key, mode) in [("d", LockMode::Reentrant), ("a", LockMode::Write)] {
        let foreign = attempt(key, mode);
        assert!(asks(&store, &foreign).await);
        let all = store
            .acquire_several(&attempts, Want::All)
            .await
            .unwrap_err();
        assert_eq!(all.kind(), StoreErrorKind::Conflict);
        assert!(releases(&store, &foreign).await);
    }
    store.withdraw(&attempts[2], true).await.unwrap();
    let all = store
        .acquire_several(&attempts, Want::All)
        .await
        .unwrap_err();
    assert_eq!(all.kind(), StoreErrorKind::Refused, "one was withdrawn");
    assert_eq!(server.dump().await.len(), 2, "its tombstone");
}

#[tokio::test]
async fn any_is_the_first_that_is_free_in_the_order_of_asking() {
    let (server, store) = server_and_store().await;
    let holders = ["a", "b{tag}", "c", "d"].map(|key| attempt(key, LockMode::Reentrant));
    for holder in &holders[..3] {
        assert!(asks(&store, holder).await);
    }
    let attempts = ["a", "b{tag}", "c", "d"].map(|key| attempt(key, LockMode::Fair));
    let any = store.acquire_several(&attempts, Want::Any).await.unwrap();
    assert_eq!(any, only(3));
    assert!(holds(&store, &attempts[3]).await);

    let short = lasting(attempt("b{tag}", LockMode::Reentrant), LEASE / 10);
    assert!(releases(&store, &holders[1]).await && asks(&store, &short).await);
    let others = ["a", "b{tag}", "c", "d"].map(|key| attempt(key, LockMode::Fair));
    let SeveralOutcome::Refused { retry_after, .. } =
        store.acquire_several(&others, Want::Any).await.unwrap()
    else {
        panic!("granted");
    };
    assert!(retry_after <= LEASE / 10, "the soonest");

    assert!(releases(&store, &holders[2]).await && releases(&store, &attempts[3]).await);
    let wanted =
        ["d", "c"].map(|key| fenced(attempt(key, LockMode::Reentrant), Fencing::default()));
    let any = store.acquire_several(&wanted, Want::Any).await.unwrap();
    assert!(
        matches!(&any, SeveralOutcome::Granted(grants)
            if matches!(grants[..], [Grant { index: 0, token: Some(_), .. }])),
        "{any:?}"
    );
    assert!(!holds(&store, &wanted[1]).await);
    assert!(releases(&store, &wanted[0]).await && releases(&store, &holders[0]).await);
    assert!(releases(&store, &short).await);
    assert_eq!(server.dump().await.len(), 1, "the counter");
}

#[tokio::test]
async fn a_question_about_several_keys_leaves_no_waiter() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        let holder = attempt(
            "k",
            if mode == LockMode::Read {
                LockMode::Write
            } else {
                mode
            },
        );
        assert!(asks(&store, &holder).await);
        let attempts = [patient("k", mode), patient("l", mode)];
        let all = store.acquire_several(&attempts, Want::All).await.unwrap();
        assert!(
            matches!(all, SeveralOutcome::Refused { index: Some(0), .. }),
            "{all:?}"
        );
        assert!(releases(&store, &holder).await);
        assert_eq!(server.dump().await, Dump::new(), "{mode:?}");
    }
}

#[tokio::test]
async fn more_keys_than_one_script_should_touch_are_all_or_nothing_as_well() {
    let (server, store) = server_and_store().await;
    let many = || (0..250).map(|n| attempt(format!("k{n}"), LockMode::Reentrant));
    let attempts: Vec<_> = many().collect();
    assert_eq!(
        tokens(store.acquire_several(&attempts, Want::All).await.unwrap()),
        vec![None; 250]
    );
    assert!(releases(&store, &attempts[7]).await);
    let others: Vec<_> = many().collect();
    let all = store.acquire_several(&others, Want::All).await.unwrap();
    assert!(
        matches!(all, SeveralOutcome::Refused { index: Some(0), .. }),
        "{all:?}"
    );
    let any = store.acquire_several(&others, Want::Any).await.unwrap();
    assert_eq!(any, only(7));
    assert_eq!(server.dump().await.len(), 250);
}

#[tokio::test]
async fn asking_for_one_key_twice_grants_it_once() {
    let (server, store) = server_and_store().await;
    let attempts = [attempt("k", LockMode::Write), attempt("k", LockMode::Write)];
    let all = store.acquire_several(&attempts, Want::All).await.unwrap();
    assert!(
        matches!(all, SeveralOutcome::Refused { index: Some(1), .. }),
        "{all:?}"
    );
    assert_eq!(server.dump().await, Dump::new());
}

/// A request may name thousands of keys, and a client that shuts down holds as many.
#[tokio::test]
async fn many_holds_may_be_released_at_once() {
    const HOLDS: usize = 250;
    let (server, store) = server_and_store().await;
    let held: Vec<_> = (0..HOLDS)
        .map(|n| attempt(format!("k{n}"), MODES[n % 4]))
        .collect();
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    let (gone, conflicting, recording) = (7, 12, 17);
    assert!(releases(&store, &held[gone]).await);
    let data = ["HSET", "k12", "status", "paid"];
    let _: i64 = server.ask(&data).await;
    let waiters = [20, 21, 22, 23].map(|n| match held[n].hold.mode {
        LockMode::Read => patient(format!("k{n}"), LockMode::Write).in_line(false),
        mode => patient(format!("k{n}"), mode).in_line(false),
    });
    let mut wakeups = Vec::new();
    for waiter in &waiters {
        assert!(!asks(&store, waiter).await);
        wakeups.push(store.subscribe(waiter).await.unwrap());
    }
    let record = Record::new("done", LEASE);
    let all = (0..HOLDS).map(|n| {
        let record = (n == recording).then_some(&record);
        store.release(&held[n].hold, record)
    });
    for (n, released) in join_all(all).await.into_iter().enumerate() {
        if n == conflicting {
            let error = released.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Conflict, "{n}");
            continue;
        }
        let released = released.unwrap();
        let expected = match n == gone {
            true => HoldStatus::Gone,
            false => HoldStatus::Held,
        };
        assert_eq!(released.status, expected, "{n}");
        let heard = [20, 23].contains(&n);
        assert_eq!(released.notified, usize::from(heard), "{n}");
    }
    for wakeups in &mut wakeups {
        woken(wakeups).await;
    }
    assert!(
        store
            .record(&held[recording].hold.key)
            .await
            .unwrap()
            .is_some()
    );
    for waiter in &waiters {
        assert!(asks(&store, waiter).await && releases(&store, waiter).await);
    }
    let left = server.dump_without_turns().await;
    assert!(
        left.keys().eq(["k12", "tower_lock_record:{k17}"]),
        "{left:?}"
    );
}

//! Several keys.

use super::*;
use crate::store::{Fencing, Grant};

/// An attempt of the `n`-th client to get one of several keys.
fn on(key: usize, mode: LockMode, n: u64) -> Attempt {
    let mut attempt = impatient(mode, n);
    attempt.hold.key = LockKey::new(format!("key:{key}"));
    attempt
}

#[test]
fn all_are_granted_or_none() {
    let store = MemoryStore::new();
    let wanted = |n| -> Vec<_> { (0..100).map(|key| on(key, MODES[key % 4], n)).collect() };
    let (first, second) = (wanted(1), wanted(2));
    let all = at_once(store.acquire_several(&first, Want::All));
    let grants = (0..100).map(|index| Grant { index, token: None });
    assert_eq!(all, SeveralOutcome::Granted(grants.collect()));
    released(&store, &first[0]);
    released(&store, &first[1]);
    let SeveralOutcome::Refused { index, retry_after } =
        at_once(store.acquire_several(&second, Want::All))
    else {
        panic!("granted");
    };
    assert_eq!(
        (index, retry_after > LEASE / 2),
        (Some(3), true),
        "the second reads beside the first"
    );
    assert!(
        second
            .iter()
            .all(|attempt| check(&store, attempt) == HoldStatus::Gone)
    );
    first[2..]
        .iter()
        .for_each(|attempt| released(&store, attempt));
    assert!(store.is_empty(), "no attempt waits");
}

#[test]
fn each_of_all_gets_the_token_that_it_asked_for() {
    let store = MemoryStore::new();
    let mut wanted = [
        on(0, LockMode::Fair, 1),
        on(1, LockMode::Write, 1),
        on(2, LockMode::Read, 1),
    ];
    wanted[0].fencing = Some(Fencing::default());
    wanted[2].fencing = Some(Fencing::default());
    let SeveralOutcome::Granted(grants) = at_once(store.acquire_several(&wanted, Want::All)) else {
        panic!("refused");
    };
    let granted: Vec<_> = grants.iter().map(|grant| grant.token.is_some()).collect();
    assert_eq!(granted, [true, false, false], "a reader has none");
}

/// Time passes while a question about many keys is decided.
#[test]
fn a_hold_that_ends_while_all_are_decided_is_answered_without_a_panic() {
    let wanted: Vec<_> = (0..300).map(|key| on(key, LockMode::Fair, 1)).collect();
    for micros in (0..2000).step_by(10) {
        let store = MemoryStore::new();
        let lease = Duration::from_micros(micros);
        outcome(
            &store,
            &Attempt {
                lease,
                ..wanted[0].clone()
            },
        );
        let patience = Some(60 * SECOND);
        let next = on(0, LockMode::Fair, 2);
        outcome(&store, &Attempt { patience, ..next });
        at_once(store.acquire_several(&wanted, Want::All));
    }
}

#[test]
fn any_is_the_first_that_is_free() {
    let store = MemoryStore::new();
    let wanted = |n| [0, 1, 2].map(|key| on(key, LockMode::Reentrant, n));
    granted(&store, &wanted(1)[0]);
    for (n, expected) in [(2, 1), (3, 2)] {
        let any = at_once(store.acquire_several(&wanted(n), Want::Any));
        assert_eq!(
            any,
            SeveralOutcome::Granted(vec![Grant {
                index: expected,
                token: None
            }])
        );
    }
    let any = at_once(store.acquire_several(&wanted(4), Want::Any));
    assert!(matches!(any, SeveralOutcome::Refused { .. }));
}

#[test]
fn asking_for_one_key_twice_grants_it_once() {
    let store = MemoryStore::new();
    let wanted = [on(0, LockMode::Write, 1), on(0, LockMode::Write, 2)];
    let all = at_once(store.acquire_several(&wanted, Want::All));
    assert!(matches!(
        all,
        SeveralOutcome::Refused { index: Some(1), .. }
    ));
    assert!(store.is_empty());
}

#[test]
fn questions_about_the_same_keys_in_any_order_wait_for_nothing_but_each_other() {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..200 {
                    let mut wanted: Vec<_> =
                        (0..32).map(|key| on(key, LockMode::Write, n)).collect();
                    wanted.rotate_left(usize::try_from(n).unwrap() * 8 + round % 8);
                    if let SeveralOutcome::Granted(_) =
                        at_once(store.acquire_several(&wanted, Want::All))
                    {
                        wanted.iter().for_each(|attempt| released(store, attempt));
                    }
                }
            });
        }
    });
    assert!(store.is_empty());
}

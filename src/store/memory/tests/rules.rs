//! Contract 1, 2, 5 and 9: exclusion, leases, withdrawals, families; and fencing tokens.

use super::*;
use crate::store::Fencing;

#[tokio::test(start_paused = true)]
async fn only_readers_share() {
    for first in MODES {
        for second in MODES {
            if first.family() != second.family() {
                continue;
            }
            let store = MemoryStore::new();
            granted(&store, &attempt(first, 1));
            if (first, second) == (LockMode::Read, LockMode::Read) {
                granted(&store, &attempt(second, 2));
            } else {
                refused(&store, &attempt(second, 2), LEASE);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_other_family_is_a_conflict_while_it_lives() {
    for first in MODES {
        for second in MODES {
            if first.family() == second.family() {
                continue;
            }
            let store = MemoryStore::new();
            granted(&store, &attempt(first, 1));
            let answer = store.acquire(&attempt(second, 2)).await;
            let kind = answer.expect_err("a conflict").kind();
            assert_eq!(kind, StoreErrorKind::Conflict);
            advance(LEASE).await;
            granted(&store, &attempt(second, 2));
            assert_eq!(check(&store, &attempt(first, 1)), HoldStatus::Gone);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_by_itself_and_a_renewal_begins_it_anew() {
    for mode in MODES {
        let store = MemoryStore::new();
        let holder = attempt(mode, 1);
        granted(&store, &holder);
        advance(LEASE - SECOND).await;
        assert_eq!(renew(&store, &holder, LEASE), HoldStatus::Held);
        advance(LEASE - SECOND).await;
        assert_eq!(check(&store, &holder), HoldStatus::Held);
        assert_eq!(renew(&store, &holder, SECOND), HoldStatus::Held);
        advance(SECOND).await;
        assert_eq!(check(&store, &holder), HoldStatus::Gone);
        assert!(store.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_withdrawn_attempt_is_not_granted() {
    for mode in MODES {
        for lease in [SECOND, LEASE] {
            let store = MemoryStore::new();
            let withdrawn = Attempt {
                lease,
                ..attempt(mode, 1)
            };
            granted(&store, &withdrawn);
            withdraw(&store, &withdrawn, true);
            let remembered = lease.max(LATENESS);
            refused_as_withdrawn(&store, &withdrawn);
            advance(remembered - SECOND).await;
            refused_as_withdrawn(&store, &withdrawn);
            let other = attempt(mode, 2);
            granted(&store, &other);
            released(&store, &other);
            advance(SECOND).await;
            assert!(store.is_empty(), "a withdrawal is forgotten in time");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answered_attempt_leaves_nothing_when_withdrawn() {
    for mode in MODES {
        let store = MemoryStore::new();
        let (holder, waiter) = (attempt(mode.opponent(), 1), attempt(mode, 2));
        granted(&store, &holder);
        refused(&store, &waiter, LEASE);
        withdraw(&store, &waiter, false);
        withdraw(&store, &holder, false);
        assert!(store.is_empty());
    }
}

trait Opponent {
    fn opponent(self) -> Self;
}

impl Opponent for LockMode {
    /// A mode that excludes this one.
    fn opponent(self) -> Self {
        match self {
            Self::Read => Self::Write,
            mode => mode,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_reader_lapses_on_its_own_and_a_writer_waits_for_the_last() {
    let store = MemoryStore::new();
    let short = Attempt {
        lease: 5 * SECOND,
        ..attempt(LockMode::Read, 1)
    };
    let long = attempt(LockMode::Read, 2);
    granted(&store, &long);
    granted(&store, &short);
    refused(&store, &impatient(LockMode::Write, 3), LEASE);
    advance(5 * SECOND).await;
    assert_eq!(check(&store, &short), HoldStatus::Gone);
    assert_eq!(check(&store, &long), HoldStatus::Held);
    refused(&store, &impatient(LockMode::Write, 3), LEASE - 5 * SECOND);
    advance(LEASE - 5 * SECOND).await;
    granted(&store, &impatient(LockMode::Write, 3));
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_over_releases_lapses_and_repeats() {
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let store = MemoryStore::new();
        let mut last = 0;
        for n in 0..100 {
            let reserve = 16;
            let fenced = Attempt {
                fencing: Some(Fencing {
                    retention: Some(SECOND),
                    reserve,
                }),
                ..attempt(mode, n)
            };
            for _ in 0..2 {
                let Outcome::Granted { token: Some(token) } = outcome(&store, &fenced) else {
                    panic!("not granted with a token");
                };
                assert!(token.value() > last, "{token:?} after {last}");
                last = token.value() + u64::from(reserve);
            }
            match n % 2 {
                0 => released(&store, &fenced),
                _ => advance(LEASE).await,
            }
        }
        assert!(store.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_shared_or_does_not_ask_has_no_token() {
    let store = MemoryStore::new();
    let fencing = Some(Fencing::default());
    let reader = Attempt {
        fencing,
        ..attempt(LockMode::Read, 1)
    };
    let unfenced = Outcome::Granted { token: None };
    assert_eq!(outcome(&store, &reader), unfenced);
    released(&store, &reader);
    assert_eq!(outcome(&store, &attempt(LockMode::Write, 2)), unfenced);
}

#[tokio::test(start_paused = true)]
async fn a_lease_beyond_all_time_does_not_panic() {
    let store = MemoryStore::new();
    let forever = Attempt {
        lease: Duration::MAX,
        ..attempt(LockMode::Write, 1)
    };
    granted(&store, &forever);
    withdraw(&store, &forever, true);
}

#[test]
fn clones_share_and_need_no_runtime() {
    let store = MemoryStore::new();
    granted(&store, &attempt(LockMode::Reentrant, 1));
    let clone = store.clone();
    assert_eq!(
        check(&clone, &attempt(LockMode::Reentrant, 1)),
        HoldStatus::Held
    );
    released(&clone, &attempt(LockMode::Reentrant, 1));
    assert!(store.is_empty());
}

/// A renewed hold outlasts the lease with which it was granted.
#[tokio::test(start_paused = true)]
async fn after_a_long_hold_in_front_of_the_line_the_line_has_the_turn() {
    for mode in [LockMode::Reentrant, LockMode::Write, LockMode::permits(1)] {
        let store = MemoryStore::new();
        let (first, overtaking) = (attempt(mode, 1), impatient(mode, 3));
        granted(&store, &impatient(mode, 2));
        assert!(matches!(outcome(&store, &first), Outcome::Refused { .. }));
        released(&store, &impatient(mode, 2));
        granted(&store, &overtaking);
        for _ in 0..100 {
            advance(SECOND).await;
            assert_eq!(renew(&store, &overtaking, LEASE), HoldStatus::Held);
            assert!(matches!(outcome(&store, &first), Outcome::Refused { .. }));
        }
        released(&store, &overtaking);
        let next = outcome(&store, &impatient(mode, 4));
        assert!(
            matches!(next, Outcome::Refused { .. }),
            "{mode:?}: overtaken again"
        );
        granted(&store, &first);
    }
}

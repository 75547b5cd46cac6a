//! The contract of a store, asked without a client: what a client relies on when an answer is lost, a question comes late, or one
//! question names several holds. Promises S2, S3, S4, S8, S10.

use std::slice::from_ref;

use HoldStatus::{Gone, Held};
use uuid::Uuid;

use super::super::recording::RecordingStore;
use super::*;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    Attempt, HoldStatus, LATENESS, LockStore, LockStoreExt, Outcome, Record, Renewal, Want,
};

/// Longer than any of these cases takes, but for the time in which a store forgets withdrawals.
const LEASE: Duration = Duration::from_secs(30);

/// The client of all attempts.
const CLIENT: Uuid = Uuid::from_u128(1);

/// Questions about one attempt.
impl RecordingStore {
    async fn is_granted(&self, attempt: &Attempt) -> bool {
        let outcome = self.acquire(attempt).await.unwrap();
        matches!(outcome, Outcome::Granted { .. })
    }

    /// Asserts that the attempt is refused as one that was withdrawn.
    async fn is_withdrawn(&self, attempt: &Attempt) {
        let refused = self.acquire(attempt).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused:?}");
        assert_eq!(self.checked(attempt).await, Gone);
    }

    async fn renewed(&self, attempt: &Attempt, lease: Duration) -> HoldStatus {
        let renewal = Renewal::new(attempt.hold.clone(), lease);
        self.renew(&[renewal]).await.unwrap()[0]
    }

    async fn checked(&self, attempt: &Attempt) -> HoldStatus {
        self.check(from_ref(&attempt.hold)).await.unwrap()[0]
    }

    async fn released(&self, attempt: &Attempt) -> HoldStatus {
        self.release(&attempt.hold, None).await.unwrap().status
    }
}

/// The `n`-th attempt on a key.
fn attempt_on(key: &str, mode: LockMode, n: u64) -> Attempt {
    let (key, id) = (key.into(), HoldId::new(CLIENT, n));
    Attempt::new(Hold { key, mode, id }, LEASE)
}

fn attempt(mode: LockMode, n: u64) -> Attempt {
    attempt_on(KEY, mode, n)
}

/// As when the first answer was lost. It is one hold, which ends once, and whose lease begins anew.
pub async fn an_attempt_that_is_made_again_is_granted_again(env: &Harness) {
    let store = env.store().await;
    let (mut one, other) = (attempt(env.mode, 1), attempt(rival(env.mode), 2));
    one.lease = env.short_lease();
    for _ in 0..2 {
        assert!(store.is_granted(&one).await);
        sleep(one.lease * 2 / 3).await;
    }
    assert!(!store.is_granted(&other).await);
    assert_eq!(store.released(&one).await, Held);
    assert_eq!(store.checked(&one).await, Gone);
    assert!(store.is_granted(&other).await);
    assert_eq!(store.released(&other).await, Held);
}

/// Whether the attempt arrived before its withdrawal or not; a request for several keys is such a copy too.
pub async fn a_late_copy_of_a_withdrawn_attempt_is_refused(env: &Harness) {
    let store = env.store().await;
    let [granted, unseen] = [1, 2].map(|n| attempt(env.mode, n));
    assert!(store.is_granted(&granted).await);
    for withdrawn in [&granted, &unseen] {
        store.withdraw(withdrawn, true).await.unwrap();
        store.is_withdrawn(withdrawn).await;
    }
    let several = [attempt_on("free", env.mode, 3), unseen];
    let refused = store.acquire_several(&several, Want::All).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Refused);
    assert_eq!(store.checked(&several[0]).await, Gone);

    let next = attempt(rival(env.mode), 4);
    assert!(store.is_granted(&next).await);
    assert_eq!(store.released(&next).await, Held);
    if env.is_paused {
        sleep(LATENESS - Duration::from_secs(1)).await;
        store.is_withdrawn(&granted).await;
    }
    env.forgets_withdrawals().await;
}

/// No message between the answer and the first wait is missed.
pub async fn a_subscription_is_active_when_it_is_answered(env: &Harness) {
    let store = env.store().await;
    for n in 0..10 {
        let one = attempt(env.mode, 2 * n);
        let waiter = attempt(rival(env.mode), 2 * n + 1).patience(LEASE);
        assert!(store.is_granted(&one).await);
        assert!(!store.is_granted(&waiter).await);
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        assert_eq!(store.released(&one).await, Held);
        let woken = timeout(env.prompt(), wakeups.wait()).await;
        assert_eq!(woken, Ok(true), "the release wakes it");
        assert!(store.is_granted(&waiter).await);
        assert_eq!(store.released(&waiter).await, Held);
    }
}

/// A renewal may come late, after one that promised more.
pub async fn a_renewal_does_not_shorten_a_lease(env: &Harness) {
    let store = env.store().await;
    let one = attempt(env.mode, 1);
    assert!(store.is_granted(&one).await);
    let short = env.short_lease();
    assert_eq!(store.renewed(&one, short).await, Held);
    sleep(short + env.moment).await;
    assert_eq!(store.checked(&one).await, Held);
    assert_eq!(store.released(&one).await, Held);
}

/// Neither a hold that never was, nor one that was released, nor one whose lease is over.
pub async fn only_an_attempt_creates_a_hold(env: &Harness) {
    let store = env.store().await;
    let [never, ended, mut lapsed] = [1, 2, 3].map(|n| attempt(env.mode, n));
    assert!(store.is_granted(&ended).await);
    assert_eq!(store.released(&ended).await, Held);
    lapsed.lease = env.short_lease();
    assert!(store.is_granted(&lapsed).await);
    sleep(lapsed.lease + env.moment).await;
    for (n, absent) in (4..).zip([lapsed, never, ended]) {
        assert_eq!(store.renewed(&absent, LEASE).await, Gone);
        assert_eq!(store.checked(&absent).await, Gone);
        store.withdraw(&absent, false).await.unwrap();
        env.store_is_empty().await;
        let next = attempt(rival(env.mode), n);
        assert!(store.is_granted(&next).await);
        assert_eq!(store.released(&absent).await, Gone);
        assert_eq!(store.released(&next).await, Held);
    }
}

/// The other hold is of the same client.
pub async fn a_question_about_a_hold_changes_no_other(env: &Harness) {
    let store = env.store().await;
    let [one, other] = [1, 2].map(|n| attempt(env.mode, n));
    assert!(store.is_granted(&one).await);
    assert_eq!(store.renewed(&other, LEASE).await, Gone);
    assert_eq!(store.released(&other).await, Gone);
    for unanswered in [false, true] {
        store.withdraw(&other, unanswered).await.unwrap();
        assert_eq!(store.checked(&one).await, Held);
    }
    assert_eq!(store.released(&one).await, Held);
    env.forgets_withdrawals().await;
}

pub async fn several_holds_are_answered_in_their_order(env: &Harness) {
    let store = env.store().await;
    // Names of one hash tag, which a Redis Cluster keeps in one slot.
    let attempts = [1, 2, 3, 4, 5].map(|n| attempt_on(&format!("{{order}}:{n}"), env.mode, n));
    for n in [0, 2, 3] {
        store.acquire(&attempts[n]).await.unwrap();
    }
    let holds = attempts.map(|attempt| attempt.hold);
    let renewals = holds.clone().map(|hold| Renewal::new(hold, LEASE));
    let statuses = [Held, Gone, Held, Held, Gone];
    assert_eq!(store.renew(&renewals).await.unwrap(), statuses);
    assert_eq!(store.check(&holds).await.unwrap(), statuses);
    for (hold, status) in holds.iter().zip(statuses) {
        let released = store.release(hold, None).await;
        assert_eq!(released.unwrap().status, status);
    }
    assert_eq!(store.check(&holds).await.unwrap(), [Gone; 5]);
}

pub async fn a_record_is_there_for_the_next_holder(env: &Harness) {
    let store = env.store().await;
    let retention = env.short_lease();
    let release_leaving = async |attempt: &Attempt, value: &'static str| {
        let record = Record::new(value, retention);
        let released = store.release(&attempt.hold, Some(&record));
        released.await.unwrap().status
    };
    let record = async || store.record(&KEY.into()).await.unwrap();
    let (one, next) = (attempt(env.mode, 1), attempt(env.mode, 2));
    assert!(store.is_granted(&one).await);
    assert_eq!(record().await, None);
    assert_eq!(release_leaving(&one, "done").await, Held);
    assert!(store.is_granted(&next).await);
    assert_eq!(record().await.unwrap(), "done");
    // One that has lost the key leaves nothing, while the key is held and when it is free.
    assert_eq!(release_leaving(&one, "late").await, Gone);
    assert_eq!(record().await.unwrap(), "done");
    assert_eq!(store.released(&next).await, Held);
    assert_eq!(release_leaving(&one, "late").await, Gone);
    assert_eq!(record().await.unwrap(), "done");
    sleep(retention).await;
    env.until("the retention is over", async || record().await.is_none())
        .await;
}

//! The contract of a store, asked without a client: what a client relies on when an answer is lost, a question comes late, or one
//! question names several holds. Promises S2, S3, S4, S8, S10.

use std::slice::from_ref;

use bytes::Bytes;
use uuid::Uuid;

use super::*;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, HoldId};
use crate::store::{
    Attempt, DynStore, Feature, HoldStatus, LATENESS, Outcome, Record, Release, Renewal, Want,
};

/// Longer than any of these cases takes, but for the time in which a store forgets withdrawals.
const LEASE: Duration = Duration::from_secs(30);

/// The client of all attempts.
const CLIENT: Uuid = Uuid::from_u128(1);

/// A store, and questions about attempts of one client.
struct Questions(Arc<dyn DynStore>);

impl Questions {
    async fn of(env: &Env) -> Self {
        Self(env.store().await)
    }

    /// Whether the attempt is granted.
    async fn acquire(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let outcome = self.0.acquire(attempt.clone()).await?;
        Ok(matches!(outcome, Outcome::Granted { .. }))
    }

    async fn is_granted(&self, attempt: &Attempt) -> bool {
        self.acquire(attempt).await.unwrap()
    }

    /// Asserts that the attempt is refused as one that was withdrawn.
    async fn is_withdrawn(&self, attempt: &Attempt) {
        let refused = self.acquire(attempt).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused:?}");
        assert_eq!(self.check(attempt).await, HoldStatus::Gone);
    }

    async fn renew_all(&self, attempts: &[Attempt], lease: Option<Duration>) -> Vec<HoldStatus> {
        let renewal = |attempt: &Attempt| Renewal {
            hold: attempt.hold.clone(),
            lease,
        };
        let renewals = attempts.iter().map(renewal).collect();
        self.0.clone().renew(renewals).await.unwrap()
    }

    async fn renew(&self, attempt: &Attempt, lease: Duration) -> HoldStatus {
        self.renew_all(from_ref(attempt), Some(lease)).await[0]
    }

    async fn check(&self, attempt: &Attempt) -> HoldStatus {
        self.renew_all(from_ref(attempt), None).await[0]
    }

    async fn release_all(&self, attempts: &[Attempt]) -> Vec<HoldStatus> {
        let releases = attempts.iter();
        let releases = releases.map(|attempt| Release::new(attempt.hold.clone()));
        let released = self.0.clone().release(releases.collect()).await.unwrap();
        released.iter().map(|released| released.status).collect()
    }

    async fn release(&self, attempt: &Attempt) -> HoldStatus {
        self.release_all(from_ref(attempt)).await[0]
    }

    async fn release_recording(&self, attempt: &Attempt, record: &Record) -> HoldStatus {
        let release = Release::new(attempt.hold.clone()).record(record.clone());
        self.0.release_alone(release).await.unwrap().status
    }

    async fn record(&self) -> Option<Bytes> {
        self.0.clone().record(KEY.into()).await.unwrap()
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) {
        let withdrawn = self.0.clone().withdraw(attempt.clone(), unanswered);
        withdrawn.await.unwrap();
    }
}

/// The `n`-th attempt on a key.
fn attempt_on(key: &str, mode: LockMode, n: u64) -> Attempt {
    let hold = Hold {
        key: key.into(),
        mode,
        id: HoldId::new(CLIENT, n),
    };
    Attempt::new(hold, LEASE)
}

fn attempt(mode: LockMode, n: u64) -> Attempt {
    attempt_on(KEY, mode, n)
}

/// As when the first answer was lost. It is one hold, which ends once.
pub async fn an_attempt_that_is_made_again_is_granted_again(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let (one, other) = (attempt(mode, 1), attempt(rival(mode), 2));
    assert!(store.is_granted(&one).await && store.is_granted(&one).await);
    assert!(!store.is_granted(&other).await);
    assert_eq!(store.release(&one).await, HoldStatus::Held);
    assert_eq!(store.check(&one).await, HoldStatus::Gone);
    assert!(store.is_granted(&other).await);
    assert_eq!(store.release(&other).await, HoldStatus::Held);
}

/// Whether the attempt arrived before its withdrawal or not; a request for several keys is such a copy too.
pub async fn a_late_copy_of_a_withdrawn_attempt_is_refused(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let [granted, unseen] = [1, 2].map(|n| attempt(mode, n));
    assert!(store.is_granted(&granted).await);
    for withdrawn in [&granted, &unseen] {
        store.withdraw(withdrawn, true).await;
        store.is_withdrawn(withdrawn).await;
    }
    let free = attempt_on("free", mode, 3);
    let several = Arc::new([free.clone(), unseen.clone()]);
    let several = store.0.clone().acquire_several(several, Want::All).await;
    assert_eq!(several.unwrap_err().kind(), StoreErrorKind::Refused);
    assert_eq!(store.check(&free).await, HoldStatus::Gone);

    let next = attempt(rival(mode), 4);
    assert!(store.is_granted(&next).await);
    assert_eq!(store.release(&next).await, HoldStatus::Held);
    if env.is_paused() {
        sleep(LATENESS - Duration::from_secs(1)).await;
        store.is_withdrawn(&granted).await;
    }
    env.forgets_withdrawals().await;
}

/// No message between the answer and the first wait is missed.
pub async fn a_subscription_is_active_when_it_is_answered(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    for n in 0..10 {
        let (one, waiter) = (attempt(mode, 2 * n), attempt(rival(mode), 2 * n + 1));
        let waiter = waiter.patience(LEASE);
        assert!(store.is_granted(&one).await);
        assert!(!store.is_granted(&waiter).await);
        let mut wakeups = store.0.clone().subscribe(waiter.clone()).await.unwrap();
        assert_eq!(store.release(&one).await, HoldStatus::Held);
        let woken = timeout(env.prompt(), wakeups.wait()).await;
        assert_eq!(woken, Ok(true), "the release wakes it");
        assert!(store.is_granted(&waiter).await);
        assert_eq!(store.release(&waiter).await, HoldStatus::Held);
    }
}

/// A renewal may come late, after one that promised more.
pub async fn a_renewal_does_not_shorten_a_lease(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let one = attempt(mode, 1);
    assert!(store.is_granted(&one).await);
    let short = env.short_lease();
    assert_eq!(store.renew(&one, short).await, HoldStatus::Held);
    sleep(short + env.moment).await;
    assert_eq!(store.check(&one).await, HoldStatus::Held);
    assert_eq!(store.release(&one).await, HoldStatus::Held);
}

/// Neither a hold that never was, nor one that has ended.
pub async fn only_an_attempt_creates_a_hold(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let [never, ended] = [1, 2].map(|n| attempt(mode, n));
    assert!(store.is_granted(&ended).await);
    assert_eq!(store.release(&ended).await, HoldStatus::Held);
    for (n, absent) in (3..).zip([never, ended]) {
        assert_eq!(store.renew(&absent, LEASE).await, HoldStatus::Gone);
        assert_eq!(store.check(&absent).await, HoldStatus::Gone);
        store.withdraw(&absent, false).await;
        env.store_is_empty().await;
        let next = attempt(rival(mode), n);
        assert!(store.is_granted(&next).await);
        assert_eq!(store.release(&absent).await, HoldStatus::Gone);
        assert_eq!(store.release(&next).await, HoldStatus::Held);
    }
}

/// The other hold is of the same client.
pub async fn a_question_about_a_hold_changes_no_other(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let (one, other) = (attempt(mode, 1), attempt(mode, 2));
    assert!(store.is_granted(&one).await);
    assert_eq!(store.renew(&other, LEASE).await, HoldStatus::Gone);
    assert_eq!(store.release(&other).await, HoldStatus::Gone);
    store.withdraw(&other, false).await;
    assert_eq!(store.check(&one).await, HoldStatus::Held);
    assert_eq!(store.release(&one).await, HoldStatus::Held);
}

pub async fn several_holds_are_answered_in_their_order(env: &Env, mode: LockMode) {
    use HoldStatus::{Gone, Held};
    let store = Questions::of(env).await;
    // Names of one hash tag, which a Redis Cluster keeps in one slot.
    let holds = [1, 2, 3, 4, 5].map(|n| attempt_on(&format!("{{order}}:{n}"), mode, n));
    for n in [0, 2, 3] {
        assert!(store.is_granted(&holds[n]).await);
    }
    let statuses = [Held, Gone, Held, Held, Gone];
    assert_eq!(store.renew_all(&holds, Some(LEASE)).await, statuses);
    assert_eq!(store.renew_all(&holds, None).await, statuses);
    assert_eq!(store.release_all(&holds).await, statuses);
    assert_eq!(store.renew_all(&holds, None).await, [Gone; 5]);
}

/// The two have one id, and the read is granted for longer.
pub async fn a_write_lives_as_long_as_the_read_of_its_owner(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let mut write = attempt(mode, 1);
    write.lease = env.short_lease();
    let read = attempt(LockMode::Read, 1).id(HoldId::new(CLIENT, 2));
    assert!(store.is_granted(&write).await && store.is_granted(&read).await);
    sleep(write.lease + env.moment).await;
    assert_eq!(store.check(&write).await, HoldStatus::Held);
    assert!(!store.is_granted(&attempt(LockMode::Read, 3)).await);
    assert_eq!(store.release(&write).await, HoldStatus::Held);
    assert_eq!(store.release(&read).await, HoldStatus::Held);
}

/// Reads of a writer have one hold id, and an id of their own each, by which a store remembers them.
pub async fn a_withdrawn_read_of_a_writer_does_not_refuse_the_next(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    let write = attempt(mode, 1);
    let [withdrawn, next] = [2, 3].map(|n| {
        let read = attempt(LockMode::Read, 1);
        read.id(HoldId::new(CLIENT, n))
    });
    assert!(store.is_granted(&write).await && store.is_granted(&withdrawn).await);
    store.withdraw(&withdrawn, true).await;
    store.is_withdrawn(&withdrawn).await;
    assert!(store.is_granted(&next).await);
    assert_eq!(store.release(&next).await, HoldStatus::Held);
    assert_eq!(store.release(&write).await, HoldStatus::Held);
    env.forgets_withdrawals().await;
}

/// If the store keeps records.
pub async fn a_record_is_there_for_the_next_holder(env: &Env, mode: LockMode) {
    let store = Questions::of(env).await;
    if store.0.capabilities().check(Feature::Records).is_err() {
        return;
    }
    let retention = env.short_lease();
    let record = |value: &'static str| Record::new(value, retention);
    let (one, next) = (attempt(mode, 1), attempt(mode, 2));
    assert!(store.is_granted(&one).await);
    assert_eq!(store.record().await, None);
    let released = store.release_recording(&one, &record("done")).await;
    assert_eq!(released, HoldStatus::Held);
    let kept = Some(Bytes::from("done"));
    assert!(store.is_granted(&next).await);
    assert_eq!(store.record().await, kept);
    // One that has lost the key leaves nothing.
    let late = store.release_recording(&one, &record("late")).await;
    assert_eq!(late, HoldStatus::Gone);
    assert_eq!(store.record().await, kept);
    assert_eq!(store.release(&next).await, HoldStatus::Held);
    assert_eq!(store.record().await, kept);
    sleep(retention).await;
    env.until("the retention is over", async || {
        store.record().await.is_none()
    })
    .await;
}

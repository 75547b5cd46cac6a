//! Stores with one flaw each. A case of the suite fails on each of them, and passes on the store without the flaw.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::from_ref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Inspect, LockStore, LockStoreExt, Outcome, Release,
    Released, Renewal, Wakeups,
};
use tower_distributed_lock::{LockKey, LockMode, MemoryStore};
use tower_distributed_lock_testing::conformance::{Clock, Testbed, cases, run};

const MODES: &[LockMode] = &[LockMode::Reentrant, LockMode::Read, LockMode::Write];

/// No flaw.
const NONE: u8 = 0;
/// A new holder takes the key from the present one.
const ROBS_HOLDERS: u8 = 1;
/// No lease ends.
const HOLDS_FOR_EVER: u8 = 2;
/// No waiter is woken.
const WAKES_NONE: u8 = 3;
/// A withdrawn attempt keeps its hold, and its place.
const WITHDRAWS_NOTHING: u8 = 4;
/// Every renewal is answered held.
const RENEWS_THE_LOST: u8 = 5;
/// Every release is answered held.
const CONFIRMS_THE_LOST: u8 = 6;
/// An attempt that is made again is refused by its own hold.
const REFUSES_A_COPY: u8 = 7;
/// A late copy of a withdrawn attempt is granted.
const FORGETS_WITHDRAWALS: u8 = 8;
/// A renewal sets the lease, whatever was promised before.
const SHORTENS: u8 = 9;
/// A renewal creates the hold.
const CREATES: u8 = 10;
/// A release ends the hold of any holder.
const RELEASES_OTHERS: u8 = 11;
/// The answers about several holds are in another order.
const CONFUSES: u8 = 12;
/// A release leaves no record.
const DROPS_RECORDS: u8 = 13;
/// A hold that has ended leaves a record.
const RECORDS_FOR_THE_LOST: u8 = 14;
/// A subscription is active some time after its answer.
const LISTENS_LATE: u8 = 15;
/// Every waiter is woken.
const WAKES_ALL: u8 = 17;
/// A dead waiter keeps its place in line.
const KEEPS_THE_DEAD: u8 = 18;
/// An attempt takes the free lock although others are in line.
const OVERTAKES: u8 = 19;
/// A process listens until it ends.
const LISTENS_ON: u8 = 20;

/// A memory store with the flaw of this number, and its testbed.
#[derive(Clone)]
struct Flawed<const FLAW: u8> {
    store: MemoryStore,
    /// The waiters of a store that keeps the dead.
    line: Arc<Mutex<Vec<Hold>>>,
    /// The subscriptions of a process that listens on.
    kept: Arc<Mutex<Vec<Wakeups>>>,
}

impl<const FLAW: u8> Testbed for Flawed<FLAW> {
    type Store = Self;
    const CLOCK: Clock = super::testbeds::PAUSED;

    async fn start() -> Self {
        Self {
            store: MemoryStore::new(),
            line: Arc::default(),
            kept: Arc::default(),
        }
    }

    async fn connect(&self) -> Self {
        let kept = Arc::default();
        Self {
            kept,
            ..self.clone()
        }
    }

    async fn leftovers(&self) -> Vec<String> {
        let left = (!self.store.is_empty()).then(|| "a hold, a waiter or a listener".to_owned());
        left.into_iter().collect()
    }
}

impl<const FLAW: u8> Flawed<FLAW> {
    /// Takes a place in line that only `leaves` ends. Returns whether another one is before it.
    fn is_behind(&self, hold: &Hold) -> bool {
        let mut line = self.line.lock().unwrap();
        if !line.contains(hold) {
            line.push(hold.clone());
        }
        line.first() != Some(hold)
    }

    fn leaves(&self, hold: &Hold) {
        self.line.lock().unwrap().retain(|waiter| waiter != hold);
    }

    async fn holds(&self, hold: &Hold) -> Result<bool, StoreError> {
        Ok(self.store.check(from_ref(hold)).await?[0] == HoldStatus::Held)
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<HoldStatus, StoreError> {
        let Renewal { hold, lease, .. } = renewal;
        let held = self.holds(hold).await?;
        match (FLAW, lease) {
            (RENEWS_THE_LOST, _) => return Ok(HoldStatus::Held),
            // To acquire is to set the lease.
            (SHORTENS, Some(lease)) if held => {
                self.store
                    .acquire(&Attempt::new(hold.clone(), *lease))
                    .await?;
            }
            (CREATES, Some(lease)) => {
                self.store
                    .acquire(&Attempt::new(hold.clone(), *lease))
                    .await?;
            }
            _ => return Ok(self.store.renew(from_ref(renewal)).await?[0]),
        }
        Ok(if held {
            HoldStatus::Held
        } else {
            HoldStatus::Gone
        })
    }

    async fn end_one(&self, release: &Release) -> Result<Released, StoreError> {
        let Release { hold, record, .. } = release;
        let is_lost = !self.holds(hold).await?;
        match FLAW {
            RELEASES_OTHERS => {
                self.store.force_unlock(&hold.key).await?;
            }
            RECORDS_FOR_THE_LOST if is_lost && record.is_some() => {
                self.store.force_unlock(&hold.key).await?;
                let lease = Duration::from_secs(1);
                self.store
                    .acquire(&Attempt::new(hold.clone(), lease))
                    .await?;
                self.store.release(from_ref(release)).await?;
                return Ok(HoldStatus::Gone.into());
            }
            _ => {}
        }
        let release = match FLAW {
            DROPS_RECORDS => Release::new(hold.clone()),
            _ => release.clone(),
        };
        let mut released = self.store.release(&[release]).await?[0];
        if FLAW == CONFIRMS_THE_LOST {
            released.status = HoldStatus::Held;
        }
        Ok(released)
    }
}

impl<const FLAW: u8> LockStore for Flawed<FLAW> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let mut attempt = attempt.clone();
        match FLAW {
            ROBS_HOLDERS if !self.holds(&attempt.hold).await? => {
                self.store.force_unlock(&attempt.hold.key).await?;
            }
            HOLDS_FOR_EVER => attempt.lease *= 1000,
            REFUSES_A_COPY if self.holds(&attempt.hold).await? => {
                let retry_after = attempt.lease;
                return Ok(Outcome::Refused { retry_after });
            }
            KEEPS_THE_DEAD if attempt.patience.is_some() && self.is_behind(&attempt.hold) => {
                let retry_after = Duration::from_secs(1);
                return Ok(Outcome::Refused { retry_after });
            }
            OVERTAKES => {
                let mut newcomer = attempt.clone();
                newcomer.patience = None;
                let answer = self.store.acquire(&newcomer).await?;
                if let Outcome::Granted { .. } = answer {
                    return Ok(answer);
                }
            }
            _ => {}
        }
        let answer = self.store.acquire(&attempt).await?;
        if let Outcome::Granted { .. } = answer {
            self.leaves(&attempt.hold);
        }
        Ok(answer)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let mut statuses = Vec::new();
        for renewal in renewals {
            statuses.push(self.renew_one(renewal).await?);
        }
        if FLAW == CONFUSES {
            statuses.reverse();
        }
        Ok(statuses)
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        let mut released = Vec::new();
        for release in releases {
            released.push(self.end_one(release).await?);
        }
        Ok(released)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.leaves(&attempt.hold);
        match FLAW {
            WITHDRAWS_NOTHING => Ok(()),
            FORGETS_WITHDRAWALS => self.store.withdraw(attempt, false).await,
            _ => self.store.withdraw(attempt, unanswered).await,
        }
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        match FLAW {
            WAKES_NONE => {
                let (signal, wakeups) = watch::channel(());
                Ok(Wakeups::new(wakeups, signal))
            }
            LISTENS_LATE => {
                let (store, attempt) = (self.store.clone(), attempt.clone());
                let (signal, wakeups) = watch::channel(());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(5)).await;
                    let mut woken = store.subscribe(&attempt).await.expect("it never fails");
                    loop {
                        tokio::select! {
                            true = woken.wait() => {
                                signal.send_replace(());
                            }
                            () = signal.closed() => return,
                        }
                    }
                });
                Ok(Wakeups::new(wakeups, ()))
            }
            WAKES_ALL => self.store.subscribe(&attempt.clone().in_line(false)).await,
            LISTENS_ON => {
                let second = self.store.subscribe(attempt).await?;
                self.kept.lock().unwrap().push(second);
                self.store.subscribe(attempt).await
            }
            _ => self.store.subscribe(attempt).await,
        }
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.store.record(key).await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

/// Runs a case on a flawed store, and on one without a flaw.
macro_rules! finds {
    ($($mode:ident: $flaw:ident by $file:ident::$case:ident;)+) => {$({
        let mode = LockMode::$mode;
        let on = || run::<Flawed<$flaw>>(MODES, mode, cases::$file::$case);
        let case = stringify!($case);
        assert!(catch_unwind(AssertUnwindSafe(on)).is_err(), "{case} passes: {}", stringify!($flaw));
        run::<Flawed<NONE>>(MODES, mode, cases::$file::$case);
    })+};
}

#[test]
fn a_case_fails_on_each_flawed_store() {
    finds! {
        Reentrant: ROBS_HOLDERS by exclusion::clients_exclude_each_other;
        Reentrant: HOLDS_FOR_EVER by lease::a_fixed_lease_ends_at_its_time;
        Reentrant: WAKES_NONE by letting_go::a_dropped_guard_releases;
        Reentrant: WITHDRAWS_NOTHING by cancel::a_cancelled_request_for_a_taken_lock_leaves_nothing;
        Reentrant: RENEWS_THE_LOST by loss::a_stolen_hold_is_reported_lost;
        Reentrant: CONFIRMS_THE_LOST by loss::the_release_of_a_stolen_hold_is_not_confirmed;
        Reentrant: REFUSES_A_COPY by contract::an_attempt_that_is_made_again_is_granted_again;
        Reentrant: FORGETS_WITHDRAWALS by contract::a_late_copy_of_a_withdrawn_attempt_is_refused;
        Reentrant: SHORTENS by contract::a_renewal_does_not_shorten_a_lease;
        Reentrant: CREATES by contract::only_an_attempt_creates_a_hold;
        Reentrant: RELEASES_OTHERS by contract::a_question_about_a_hold_changes_no_other;
        Reentrant: CONFUSES by contract::several_holds_are_answered_in_their_order;
        Reentrant: DROPS_RECORDS by contract::a_record_is_there_for_the_next_holder;
        Reentrant: RECORDS_FOR_THE_LOST by contract::a_record_is_there_for_the_next_holder;
        Reentrant: LISTENS_LATE by contract::a_subscription_is_active_when_it_is_answered;
        Reentrant: WAKES_ALL by line::a_release_wakes_only_the_first_in_line;
        Write: WAKES_ALL by line::a_release_wakes_only_the_first_in_line;
        Reentrant: KEEPS_THE_DEAD by line::a_frozen_waiter_in_line_loses_its_place;
        Write: KEEPS_THE_DEAD by line::a_frozen_waiter_in_line_loses_its_place;
        Reentrant: OVERTAKES by line::a_newcomer_does_not_overtake_the_line;
        Write: OVERTAKES by line::a_newcomer_does_not_overtake_the_line;
        Reentrant: LISTENS_ON by letting_go::a_dropped_guard_releases;
    }
}

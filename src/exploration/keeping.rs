//! One hold between its keeper, its holder, a thief and the clock: promises S2 to S5.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tokio::time::Instant;
use uuid::Uuid;

use super::store::Paced;
use super::{explore, pass};
use crate::error::LockError;
use crate::hold::{End, Held, valid_for};
use crate::keeper;
use crate::limits::ANSWER_TIME;
use crate::lock::{Hold, Lease, LockMode};
use crate::release::{Core, Share};
use crate::spawn::Spawner;
use crate::store::{Attempt, LockStore, Outcome, Store};
use crate::table::{Entered, HandoverLimits, Table, Terms};
use crate::telemetry::{Events, LockEventKind, LockEvents, Route};

const LEASE: Duration = Duration::from_secs(3);

/// The hold, and the states in which it was observed.
struct Watch {
    store: Paced,
    core: Arc<Core>,
    held: Arc<Held>,
    share: Mutex<Option<Share>>,
    events: Mutex<LockEvents>,
    stolen: AtomicBool,
    /// It was observed past its deadline, so it must stay lost.
    overdue: AtomicBool,
    gone: AtomicBool,
}

impl Watch {
    async fn begin() -> Arc<Self> {
        let store = Paced::default();
        let events = Events::default();
        let listening = events.listen();
        let core = Arc::new(Core::new(
            Uuid::nil(),
            Store::new(store.clone()),
            Table::new(HandoverLimits::default(), 10, true),
            Spawner::new(None),
            events,
            None,
        ));
        let ready = core
            .spawner
            .ready(|| None, || keeper::keep(Arc::downgrade(&core)));
        ready.expect("there is a runtime");
        let terms = Terms {
            mode: LockMode::Reentrant,
            owner: None,
            lease: Lease::Renewed(LEASE),
            max_hold: None,
            fenced: false,
            max_waiters: None,
            wait: Duration::ZERO,
            route: Route::default(),
        };
        let number = core.next_number();
        let hold = Hold {
            key: "account:42".into(),
            mode: terms.mode,
            id: core.hold_id(number),
        };
        let (key, now) = (&hold.key, Instant::now());
        let entered = core.entry(key, now, |key| key.enter(number, &terms, &mut None));
        assert!(matches!(entered, Ok(Entered::Ask { .. })));
        let attempt = Attempt::new(hold.clone(), LEASE);
        let granted = store.acquire(&attempt).await.unwrap();
        assert!(matches!(granted, Outcome::Granted { .. }));
        let held = Held::new(
            hold,
            terms.lease,
            Route::default(),
            None,
            now + valid_for(LEASE),
        );
        let held = Arc::new(held);
        let (key, now) = (&held.hold.key, Instant::now());
        let granted = core.event(key, now, |key| key.granted(number, held.clone(), &terms));
        let share = core.share(granted.unwrap().unwrap());
        Arc::new(Self {
            store,
            core,
            held,
            share: Mutex::new(Some(share)),
            events: Mutex::new(listening),
            stolen: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// Checks the invariants of every moment.
    fn look(&self) {
        // Other threads run between any two lines: earlier facts are read first, and present ones last.
        let gone = self.gone.load(Ordering::SeqCst);
        let overdue = self.overdue.load(Ordering::SeqCst);
        let carried = self.store.carries(&self.held.hold).now_or_never();
        let now = Instant::now();
        let lost = self.held.is_lost(now);
        let is_open = self.held.is_open(now);
        let end = self.held.end();
        let stolen = self.stolen.load(Ordering::SeqCst);
        let is_gone = matches!(end, Some(End::Lost));
        assert!(is_gone || !gone, "found again after it was lost");
        let is_released = matches!(end, Some(End::Released));
        assert!(
            !is_released || !overdue,
            "released as held after its deadline was seen"
        );
        if is_open && end.is_none() {
            assert!(!overdue, "found again after its deadline");
            assert!(stolen || carried == Some(true), "believed to be held");
        }
        self.gone.fetch_or(is_gone, Ordering::SeqCst);
        self.overdue.fetch_or(lost, Ordering::SeqCst);
    }

    async fn clock(self: Arc<Self>) {
        for _ in 0..8 {
            pass(LEASE * thread_rng().gen_range(1..5) / 10);
            self.look();
            for _ in 0..thread_rng().gen_range(0..8) {
                yield_now().await;
                self.look();
            }
        }
    }

    async fn thief(self: Arc<Self>) {
        for _ in 0..thread_rng().gen_range(0..40) {
            yield_now().await;
        }
        self.stolen.store(true, Ordering::SeqCst);
        self.store.steal(&self.held.hold).await;
    }

    async fn asker(self: Arc<Self>) {
        for _ in 0..3 {
            let asked = Instant::now();
            let last = self.held.latest_question();
            self.core.check(&self.held);
            match Core::confirmed(self.held.clone(), last).await {
                Ok(()) => {}
                Err(LockError::Lost) => assert!(self.held.was_lost()),
                // The clock of a scenario may jump past the time limit of a check.
                Err(LockError::Unavailable(_)) if asked.elapsed() >= ANSWER_TIME => {}
                Err(error) => panic!("{error}"),
            }
            self.look();
        }
    }

    async fn holder(self: Arc<Self>) {
        for _ in 0..thread_rng().gen_range(0..40) {
            yield_now().await;
        }
        let share = self
            .share
            .lock()
            .unwrap()
            .take()
            .expect("it was not released");
        let release = share.release(None, Instant::now());
        let was_lost = release.is_lost();
        let released = release.await;
        self.look();
        let end = self.held.end().expect("it is over");
        match was_lost {
            true => assert!(matches!(end, End::Lost), "lost before its release: {end:?}"),
            false => assert_eq!(
                released.is_ok(),
                matches!(end, End::Released),
                "{released:?}"
            ),
        }
        // Lets a renewal that is under way finish.
        for _ in 0..20 {
            let there = self.store.carries(&self.held.hold).await;
            assert!(!there, "alive after its release");
            yield_now().await;
        }
    }

    /// How often its loss was reported.
    fn losses(&self) -> usize {
        let mut events = self.events.lock().unwrap();
        let mut lost = 0;
        while let Some(Some(event)) = events.next().now_or_never() {
            lost += usize::from(matches!(event.kind, LockEventKind::Lost { .. }));
        }
        lost
    }
}

fn scenario(thief: bool) -> impl Fn() + Send + Sync {
    move || {
        block_on(async {
            let watch = Watch::begin().await;
            let mut tasks = vec![
                spawn(watch.clone().clock()),
                spawn(watch.clone().asker()),
                spawn(watch.clone().holder()),
            ];
            if thief {
                tasks.push(spawn(watch.clone().thief()));
            }
            for task in tasks {
                task.await.unwrap();
            }
            let lost = watch.losses();
            assert!(lost <= 1, "its loss was reported {lost} times");
            // A task that waits for the end is woken.
            let last = watch.held.latest_question();
            drop(watch.held.confirmed(last).await);
            assert!(lost == 0 || watch.held.was_lost());
        });
    }
}

#[test]
fn renewals_checks_and_the_release_of_a_hold_agree() {
    explore(1000, scenario(false));
}

#[test]
fn renewals_checks_and_the_release_of_a_stolen_hold_agree() {
    explore(1000, scenario(true));
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, finds};

    #[test]
    fn a_loss_that_is_undone_is_found() {
        finds(Mutant::LossUndone, 10_000, scenario(false));
    }

    #[test]
    fn a_late_renewal_that_counts_is_found() {
        finds(Mutant::LateRenewal, 10_000, scenario(false));
    }
}

//! One hold between its watchdog, its holder, a thief and the clock: promises S2 to S5.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tokio::time::Instant;
use uuid::Uuid;

use super::store::Paced;
use super::{Mutant, explore, finds, pass};
use crate::background::{Background, EndOfHold, ReleaseQuestion};
use crate::cleanup::{ANSWER_TIME, in_time};
use crate::error::LockError;
use crate::lock::{Hold, HoldId, Lease, LockMode};
use crate::store::{Attempt, HoldStatus, LockStore, Outcome, Released, Renewal, erase};
use crate::telemetry::Events;
use crate::watchdog::{LiveHold, Phase};

const LEASE: Duration = Duration::from_secs(3);

/// The hold, and the states in which it was observed.
struct Watch {
    store: Paced,
    background: Background,
    live: Arc<LiveHold>,
    lost: Arc<AtomicUsize>,
    stolen: AtomicBool,
    /// It was observed past its deadline, so it must stay lost.
    overdue: AtomicBool,
    gone: AtomicBool,
}

impl Watch {
    async fn begin() -> Arc<Self> {
        let store = Paced::default();
        let lost = Arc::new(AtomicUsize::new(0));
        let background = Background::new(erase(store.clone()), None, Events::default(), {
            let lost = lost.clone();
            Box::new(move |_| {
                lost.fetch_add(1, Ordering::SeqCst);
            })
        });
        let attempt = Attempt {
            hold: Hold {
                key: "account:42".into(),
                mode: LockMode::Reentrant,
                id: HoldId::new(Uuid::nil(), 1),
            },
            id: HoldId::new(Uuid::nil(), 1),
            lease: LEASE,
            patience: None,
            in_line: true,
            fencing: None,
        };
        let sent = Instant::now();
        let granted = store.acquire(&attempt).await.unwrap();
        assert!(matches!(granted, Outcome::Granted { .. }));
        let lease = Lease::Renewed(LEASE);
        let live = Arc::new(LiveHold::new(
            attempt.hold.clone(),
            lease,
            None,
            sent,
            LEASE,
        ));
        background.keep(&live);
        Arc::new(Self {
            store,
            background,
            live,
            lost,
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
        let carried = self.store.carries(&self.live.hold).now_or_never();
        let lost = self.live.see_lost();
        let phase = self.live.phase();
        let stolen = self.stolen.load(Ordering::SeqCst);
        assert!(
            phase == Phase::Lost || !gone,
            "found again after it was lost"
        );
        assert!(
            phase != Phase::Released || !overdue,
            "released as held after its deadline was seen"
        );
        if phase == Phase::Held && !lost {
            assert!(!overdue, "found again after its deadline");
            assert!(stolen || carried == Some(true), "believed to be held");
        }
        self.gone.fetch_or(phase == Phase::Lost, Ordering::SeqCst);
        self.overdue
            .fetch_or(phase == Phase::Held && lost, Ordering::SeqCst);
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
        self.store.steal(&self.live.hold).await;
    }

    async fn asker(self: Arc<Self>) {
        for _ in 0..3 {
            let asked = Instant::now();
            let answer = in_time(self.background.check(&self.live)).await;
            match answer {
                Ok(()) => {}
                Err(LockError::Lost) => {
                    assert_eq!(self.live.ended().await, Phase::Lost);
                }
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
        let held = self.background.begin_release(&self.live);
        assert!(!self.background.begin_release(&self.live), "released twice");
        let (background, live) = (self.background.clone(), self.live.clone());
        let released = ReleaseQuestion::new(Alone { background, live }, None).await;
        self.look();
        if held {
            let phase = self.live.phase();
            assert_eq!(released.is_ok(), phase == Phase::Released, "{released:?}");
        } else {
            assert_eq!(self.live.phase(), Phase::Lost, "lost before its release");
        }
        // Lets a renewal that is under way finish.
        for _ in 0..20 {
            let there = self.store.carries(&self.live.hold).await;
            assert!(!there, "alive after its release");
            yield_now().await;
        }
    }
}

/// The end of a hold for which nothing waits.
struct Alone {
    background: Background,
    live: Arc<LiveHold>,
}

impl EndOfHold for Alone {
    fn live(&self) -> &Arc<LiveHold> {
        &self.live
    }

    fn background(&self) -> &Background {
        &self.background
    }

    fn asked(&mut self, _: Released) {}
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
            let lost = watch.lost.load(Ordering::SeqCst);
            assert!(lost <= 1, "its loss was reported {lost} times");
            // A task that waits for the end is woken.
            let end = watch.live.ended().await;
            assert!(lost == 0 || end == Phase::Lost);
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

#[test]
fn a_loss_that_is_undone_is_found() {
    finds(Mutant::LossUndone, 10_000, scenario(false));
}

#[test]
fn a_late_renewal_that_counts_is_found() {
    finds(Mutant::LateRenewal, 10_000, scenario(false));
}

/// The scenario detects a renewal that creates a hold.
#[test]
fn a_renewal_creates_no_hold() {
    explore(10, || {
        block_on(async {
            let store = Paced::default();
            let hold = Hold {
                key: "account:42".into(),
                mode: LockMode::Reentrant,
                id: HoldId::new(Uuid::nil(), 1),
            };
            let renewal = Renewal::new(hold, LEASE);
            let renewed = store.renew(slice::from_ref(&renewal)).await.unwrap();
            assert_eq!(renewed, [HoldStatus::Gone]);
            assert!(store.store.is_empty());
        });
    });
}

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use uuid::Uuid;

use super::*;
use crate::lock::{Hold, HoldId, Lease, LockMode};
use crate::store::{
    Attempt, BATCH, Capabilities, LockStore, Outcome, Release, Released, Wakeups, erase,
};

const LEASE: Duration = Duration::from_secs(30);
const BATCHES: u32 = 5;

/// A store that is only asked for renewals. It answers each after a time, or never.
struct Slow {
    answers_after: Option<Duration>,
    /// Its first answer is an error, at once.
    fails_first: bool,
    /// When each question came, and for which lease.
    asked: Arc<Mutex<Vec<(Instant, Duration)>>>,
}

impl LockStore for Slow {
    async fn acquire(&self, _: &Attempt) -> Result<Outcome, StoreError> {
        unreachable!("no hold is asked for")
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let lease = renewals[0].lease.expect("a renewal names its lease");
        let is_first = {
            let mut asked = self.asked.lock();
            asked.push((Instant::now(), lease));
            asked.len() == 1
        };
        if is_first && self.fails_first {
            return Err(undecided());
        }
        match self.answers_after {
            Some(after) => sleep(after).await,
            None => pending().await,
        }
        Ok(vec![HoldStatus::Held; renewals.len()])
    }

    async fn release(&self, _: &[Release]) -> Result<Vec<Released>, StoreError> {
        unreachable!("no hold ends")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new([LockMode::Reentrant])
    }

    async fn withdraw(&self, _: &Attempt, _: bool) -> Result<(), StoreError> {
        unreachable!("no hold is asked for")
    }

    async fn subscribe(&self, _: &Attempt) -> Result<Wakeups, StoreError> {
        unreachable!("no hold is waited for")
    }
}

/// A round of batches with one hold each. The last has this lease.
fn round(last: Duration) -> Vec<Arc<Batch>> {
    let batch = |n: u32| {
        let lease = if n + 1 == BATCHES { last } else { LEASE };
        Arc::new(Batch {
            partition: 0,
            holds: vec![(hold(n.into()), lease)],
        })
    };
    (0..BATCHES).map(batch).collect()
}

fn hold(n: u64) -> Arc<LiveHold> {
    let hold = Hold {
        key: format!("account:{n}").into(),
        mode: LockMode::Reentrant,
        id: HoldId::new(Uuid::nil(), n),
    };
    let now = Instant::now();
    LiveHold::new(hold, Lease::Renewed(LEASE), None, now, LEASE).into()
}

fn watchdog(store: Slow) -> Arc<Watchdog> {
    let (tasks, events) = (Arc::default(), Events::default());
    Watchdog::new(erase(store), None, tasks, events, Box::new(|_| ()))
}

/// The times of the questions from the start of the round, and their leases. It is given up after a hundredth of the lease.
async fn ask(
    answers_after: Option<Duration>,
    batches: Vec<Arc<Batch>>,
) -> Vec<(Duration, Duration)> {
    let asked = Arc::<Mutex<_>>::default();
    let watchdog = watchdog(Slow {
        answers_after,
        fails_first: false,
        asked: asked.clone(),
    });
    let began = Instant::now();
    let round = watchdog.renew_one_by_one(batches);
    let _ = tokio::time::timeout(LEASE / 100, round).await;
    let asked = asked.lock();
    let asked = asked.iter();
    asked.map(|(at, lease)| (*at - began, *lease)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_asked_for_after_the_answer_to_the_one_before() {
    let delay = Duration::from_millis(2);
    let asked = ask(Some(delay), round(LEASE)).await;
    let times: Vec<_> = asked.iter().map(|(at, _)| *at).collect();
    let expected: Vec<_> = (0..BATCHES).map(|n| delay * n).collect();
    assert_eq!(times, expected);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_asked_for_all_batches_within_a_hundredth_of_the_lease() {
    let asked = ask(None, round(LEASE)).await;
    assert_eq!(asked.len(), BATCHES as usize);
    assert!(asked.is_sorted());
    assert!(
        asked[1].0 > Duration::ZERO,
        "the second waits for the first"
    );
}

/// Such a lease counts from the time when the batch was composed.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_cut_at_a_limit_is_asked_for_at_once() {
    let asked = ask(None, round(LEASE / 2)).await;
    assert_eq!(asked[0], (Duration::ZERO, LEASE / 2));
    assert_eq!(asked.len(), BATCHES as usize);
}

/// Two batches are due at once. The answer to the second may come late, and both have nearly one deadline.
#[tokio::test(start_paused = true)]
async fn a_partition_is_probed_while_another_batch_of_its_round_has_no_answer() {
    let asked = Arc::<Mutex<_>>::default();
    let watchdog = watchdog(Slow {
        answers_after: None,
        fails_first: true,
        asked: asked.clone(),
    });
    for n in 0..2 * BATCH as u64 {
        watchdog.begin(&hold(n));
    }
    // The task has looked at the new holds, and sleeps.
    sleep(LEASE / 100).await;
    advance(LEASE / 3).await;
    sleep(LEASE / 100).await;
    assert!(asked.lock().len() > 2, "the partition is not probed");
}

//! Invariants under random operations.

use super::*;

/// The holds that callers were granted, and their deadlines.
#[derive(Default)]
struct Granted(Vec<(Hold, Instant)>);

impl Granted {
    fn write_down(&mut self, attempt: &Attempt, until: Instant) {
        self.strike_out(attempt);
        self.0.push((attempt.hold.clone(), until));
    }

    fn strike_out(&mut self, attempt: &Attempt) {
        self.0.retain(|(hold, _)| *hold != attempt.hold);
    }

    fn carries(&self, attempt: &Attempt) -> HoldStatus {
        match self.until(attempt) {
            Some(_) => HoldStatus::Held,
            None => HoldStatus::Gone,
        }
    }

    fn until(&self, attempt: &Attempt) -> Option<Instant> {
        let mut all = self.0.iter();
        all.find_map(|(hold, until)| (*hold == attempt.hold).then_some(*until))
    }

    /// Live holds are readers only, or one hold of another mode.
    fn assert_rule(&mut self) {
        self.0.retain(|(_, until)| *until > Instant::now());
        let excludes = self.0.iter().any(|(hold, _)| hold.mode.is_exclusive());
        assert!(!excludes || self.0.len() == 1, "{:?}", self.0);
    }
}

fn one_of<T: Copy>(random: &mut fastrand::Rng, all: &[T]) -> T {
    all[random.usize(..all.len())]
}

#[tokio::test(start_paused = true)]
async fn random_operations_keep_the_rule_and_leave_nothing() {
    for seed in 0..200 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let store = MemoryStore::new();
        let mut granted = Granted::default();
        let family = match seed % 2 {
            0 => [LockMode::Reentrant, LockMode::Fair],
            _ => [LockMode::Read, LockMode::Write],
        };
        for _ in 0..300 {
            let mode = one_of(random, &family);
            // An id belongs to one mode.
            let n = random.u64(..6) + if mode == family[1] { 10 } else { 0 };
            let attempt = Attempt {
                patience: random.bool().then_some(SECOND),
                lease: SECOND * random.u32(1..5),
                ..attempt(mode, n)
            };
            match random.u8(..6) {
                0..3 => {
                    let answer = store.acquire(&attempt).now_or_never();
                    if let Some(Ok(Outcome::Granted { .. })) = answer {
                        granted.write_down(&attempt, Instant::now() + attempt.lease);
                    }
                }
                3 => {
                    let known = granted.carries(&attempt);
                    match random.bool() {
                        true => {
                            assert_eq!(at_once(store.release(&attempt.hold, None)).status, known)
                        }
                        false => withdraw(&store, &attempt, random.u8(..8) == 0),
                    }
                    granted.strike_out(&attempt);
                }
                4 => {
                    let known = granted.carries(&attempt);
                    assert_eq!(renew(&store, &attempt, attempt.lease), known);
                    if known == HoldStatus::Held {
                        // A renewal never shortens a lease.
                        let until = granted
                            .until(&attempt)
                            .max(Some(Instant::now() + attempt.lease));
                        granted.write_down(&attempt, until.expect("it is held"));
                    }
                }
                _ => advance(Duration::from_millis(random.u64(..1_500))).await,
            }
            granted.assert_rule();
            for (hold, _) in &granted.0 {
                assert_eq!(
                    at_once(store.check(std::slice::from_ref(hold))),
                    [HoldStatus::Held]
                );
            }
        }
        advance(LATENESS).await;
        assert!(store.is_empty(), "seed {seed}");
    }
}

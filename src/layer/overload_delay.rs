//! The delay before a refusal of an overloaded process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::rejection::{Rejection, RejectionKind};
use crate::sync::Mutex;

/// The time from one refusal to the next.
const INTERVAL: Duration = Duration::from_millis(1);

/// How many refusals of a layer wait at a time. The next one is answered at once.
const MOST: usize = 16 * 1024;

/// Delays refusals, so that about a thousand per second and layer are answered.
///
/// A refusal is cheap, but a client that ignores `Retry-After` sends its next request at once. A thousand such clients occupy
/// all workers of the runtime, and the holder of the lock needs a worker for each of its steps. A delayed refusal occupies no
/// worker. The first refusals of a burst are not delayed, and clients that wait as `Retry-After` says rarely are.
///
/// Clones share the schedule.
#[derive(Debug, Clone)]
pub(crate) struct OverloadDelay {
    pub(crate) longest: Duration,
    schedule: Arc<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    /// When the next refusal may be answered. Each refusal moves it by [`INTERVAL`], unless it would be delayed for longer
    /// than the longest delay. No other mutex is taken under it.
    next: Mutex<Option<Instant>>,
    /// A permit for each refusal that may wait.
    places: Semaphore,
}

impl Default for OverloadDelay {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(1),
            schedule: Arc::new(Schedule {
                next: Mutex::default(),
                places: Semaphore::new(MOST),
            }),
        }
    }
}

impl OverloadDelay {
    /// Whether the rejection is one of an overloaded process.
    pub(crate) fn applies_to(rejection: &Rejection) -> bool {
        matches!(
            rejection.kind(),
            RejectionKind::Overloaded | RejectionKind::BodyBudget
        )
    }

    /// Waits until a refusal may be answered, for `most` at most.
    ///
    /// # Cancel safety
    ///
    /// The caller may drop the future at any time. The moment that the refusal got is not given to another one.
    pub(crate) async fn pass(&self, most: Duration) {
        let longest = self.longest.min(most);
        if longest.is_zero() {
            return;
        }
        let now = Instant::now();
        let answer = self.schedule.next(now, longest);
        if answer <= now {
            return;
        }
        if let Ok(_place) = self.schedule.places.try_acquire() {
            sleep_until(answer).await;
        }
    }
}

impl Schedule {
    /// When the refusal of `now` is answered. If too many wait for the next moment, it is a random one, so that they are not
    /// answered together.
    fn next(&self, now: Instant, longest: Duration) -> Instant {
        let mut next = self.next.lock();
        let answer = next.map_or(now, |next| next.max(now));
        if answer - now <= longest {
            *next = Some(answer + INTERVAL);
            return answer;
        }
        drop(next);
        now + longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::error::LockError;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn refusals_are_a_millisecond_apart_and_the_longest_delay_is_kept() {
        let schedule = OverloadDelay::default().schedule;
        let now = Instant::now();
        for n in 0..=1_000 {
            assert_eq!(schedule.next(now, SECOND), now + n * INTERVAL);
        }
        for _ in 0..100 {
            let delay = schedule.next(now, SECOND) - now;
            assert!(delay >= SECOND / 2 && delay <= SECOND, "{delay:?}");
        }
        // The random ones have moved nothing.
        let later = now + SECOND;
        assert_eq!(schedule.next(later, SECOND), later + INTERVAL);
        let quiet = later + 10 * SECOND;
        assert_eq!(schedule.next(quiet, SECOND), quiet);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_waits() {
        let delay = OverloadDelay::default();
        for _ in 0..10 {
            delay.schedule.next(Instant::now(), SECOND);
        }
        let mut waiting: Vec<_> = (0..MOST).map(|_| Box::pin(delay.pass(SECOND))).collect();
        for delayed in &mut waiting {
            assert!(delayed.now_or_never().is_none());
        }
        assert!(delay.pass(SECOND).now_or_never().is_some());
        drop(waiting);
        assert!(delay.pass(SECOND).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_is_bounded_by_both_limits_and_zero_is_none() {
        let delay = OverloadDelay::default();
        let took = async |delay: &OverloadDelay, most| {
            let began = Instant::now();
            delay.pass(most).await;
            began.elapsed()
        };
        for _ in 0..10 {
            delay.schedule.next(Instant::now(), SECOND);
        }
        assert_eq!(took(&delay, Duration::ZERO).await, Duration::ZERO);
        let short = Duration::from_millis(4);
        assert!(took(&delay, short).await <= short);
        assert!(took(&delay, SECOND).await > Duration::ZERO);
        let mut none = delay.clone();
        none.longest = Duration::ZERO;
        assert_eq!(took(&none, SECOND).await, Duration::ZERO);
    }

    #[test]
    fn only_refusals_for_overload_are_delayed() {
        let delayed = |rejection| OverloadDelay::applies_to(&rejection);
        assert!(delayed(LockError::Overloaded.into()));
        assert!(delayed(Rejection::new(RejectionKind::BodyBudget)));
        assert!(!delayed(LockError::Busy { retry_after: None }.into()));
        assert!(!delayed(LockError::Shutdown.into()));
    }
}

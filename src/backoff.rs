//! Pauses between failed attempts.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// Pauses that double up to a limit. Each is shortened at random by up to a quarter, so that clients that failed
/// together do not retry together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Between two questions to a store, or two tries to connect to it.
    pub(crate) const STORE: Self = Self::new(Duration::from_millis(20), Self::LONGEST);

    /// The longest pause of [`STORE`](Self::STORE).
    pub(crate) const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The pause before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        self.next_within(self.longest)
    }

    /// The pause before the next attempt, `limit` at most. The pauses after it double as without the limit.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        jittered(pause.min(limit))
    }

    /// Starts again with the first pause.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Sleeps until the next attempt.
    pub(crate) async fn pause(&mut self) {
        sleep(self.next()).await;
    }

    /// Sleeps until the next attempt, if that is before `over`. Otherwise returns `false` at once.
    pub(crate) async fn pause_before(&mut self, over: Instant) -> bool {
        let next = Instant::now() + self.next();
        let is_in_time = next < over;
        if is_in_time {
            sleep_until(next).await;
        }
        is_in_time
    }
}

/// The duration, shortened at random by up to a quarter.
pub(crate) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.75 + fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_cut_by_a_quarter_at_most() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(20), ms(100));
        for whole in [20, 40, 80, 100, 100] {
            let pause = backoff.next();
            assert!(
                pause <= ms(whole) && pause >= ms(whole) * 3 / 4,
                "{pause:?}"
            );
        }
        backoff.reset();
        assert!(backoff.next() <= ms(20));
    }

    #[test]
    fn a_limit_cuts_one_pause_and_not_those_after_it() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(20), ms(100));
        assert!(backoff.next_within(ms(10)) <= ms(10));
        assert!(backoff.next() >= ms(30));
    }
}

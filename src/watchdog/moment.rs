//! Points in time, in eight bytes.

use std::num::NonZeroU64;
use std::ops::Add;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// A point in time in nanoseconds, 2⁶³ of which had passed when this process first asked for one.
///
/// It takes half the room of an [`Instant`], and an optional one takes no more. A hold has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

/// The number of the moment when this process first asked for one.
const MIDDLE: u64 = 1 << 63;

static BASE: LazyLock<Instant> = LazyLock::new(|| std::time::Instant::now().into());

impl From<Instant> for Moment {
    fn from(at: Instant) -> Self {
        let base = *BASE;
        let nanos = match at.checked_duration_since(base) {
            Some(since) => MIDDLE.saturating_add(nanos(since)),
            None => MIDDLE.saturating_sub(nanos(base - at)),
        };
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}

impl From<Moment> for Instant {
    fn from(Moment(nanos): Moment) -> Self {
        let base = *BASE;
        match nanos.get().checked_sub(MIDDLE) {
            Some(since) => base + Duration::from_nanos(since),
            None => base - Duration::from_nanos(MIDDLE - nanos.get()),
        }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Moment {
    /// Later than every point in time that this process reaches.
    pub(crate) const NEVER: Self = Self(NonZeroU64::MAX);

    /// The tenths of a second, of which the upper bits are cut off.
    pub(crate) fn tenths(self) -> u32 {
        (self.0.get() / 100_000_000) as u32
    }

    pub(super) fn nanos(self) -> u64 {
        self.0.get()
    }

    /// The time from `earlier` to this; zero if it is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// The nanoseconds of a duration, or the most that there are.
pub(super) fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_stays_the_same_and_in_order() {
        let base = *BASE;
        let day = Duration::from_secs(86_400);
        let nano = Duration::from_nanos(1);
        let instants = [
            base - day,
            base - nano,
            base,
            base + nano,
            base + 1000 * day,
        ];
        for at in instants {
            assert_eq!(Instant::from(Moment::from(at)), at);
        }
        assert!(instants.map(Moment::from).is_sorted());
        assert_eq!(Moment::from(base) + day, Moment::from(base + day));
        assert_eq!(Moment::from(base + day).since(base.into()), day);
        assert_eq!(
            Moment::from(base).since((base + day).into()),
            Duration::ZERO
        );
        assert_eq!(size_of::<Option<Moment>>(), 8);
    }
}

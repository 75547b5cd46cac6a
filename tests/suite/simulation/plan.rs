//! The plan of a caller.

use std::time::Duration;

use fastrand::Rng;
use tower_distributed_lock::{Lease, LockMode};

use super::impatient::Patience;

/// The locks that callers may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Menu {
    /// All locks.
    All,
    /// Places in fair queues.
    Fair,
    /// Places in line, and readers.
    Line,
    /// The locks that a quorum supports.
    Quorum,
    /// Permits.
    Permits,
}

/// The number of permits.
const PERMITS: u32 = 2;

impl Menu {
    /// Keys, and the modes in which they are taken.
    fn draw(self, random: &mut Rng) -> ([&'static str; 2], [LockMode; 2]) {
        let modes = [
            match self {
                Self::All => [LockMode::Reentrant, LockMode::Fair],
                Self::Fair => [LockMode::Fair; 2],
                Self::Line | Self::Quorum => [LockMode::Reentrant; 2],
                Self::Permits => [LockMode::permits(PERMITS); 2],
            },
            [LockMode::Read, LockMode::Write],
        ];
        if self == Self::Permits {
            // A program may name another limit.
            let other = PERMITS + u32::from(random.u8(..8) == 0);
            return (KEYS[2], [PERMITS, other].map(LockMode::permits));
        }
        let family = match self {
            Self::Fair | Self::Permits => 0,
            Self::All | Self::Line | Self::Quorum => random.usize(..2),
        };
        (KEYS[family], modes[family])
    }

    fn draw_what(self, keys: [&'static str; 2], random: &mut Rng) -> What {
        let one = What::One(keys[usize::from(random.u8(..4) == 0)]);
        match (self, random.u8(..10)) {
            (Self::Fair | Self::Line, _) => one,
            (_, 0) => What::All(keys),
            (_, 1) => What::Any(keys),
            _ => one,
        }
    }

    /// Every key, with a mode that excludes all others.
    pub(super) fn everything(self) -> Vec<(&'static str, LockMode)> {
        let exclusive = match self {
            Self::All | Self::Fair => LockMode::Fair,
            Self::Line | Self::Quorum => LockMode::Reentrant,
            Self::Permits => return KEYS[2].map(|key| (key, LockMode::permits(1))).into(),
        };
        let keys = KEYS[0].map(|key| (key, exclusive));
        let others = KEYS[1].map(|key| (key, LockMode::Write));
        keys.into_iter().chain(others).collect()
    }
}

/// The keys of each family.
const KEYS: [[&str; 2]; 3] = [["a", "b"], ["x", "y"], ["p", "q"]];

/// One acquisition, and the steps after it.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) what: What,
    pub(super) mode: LockMode,
    pub(super) wait: Duration,
    pub(super) lease: Lease,
    pub(super) max_hold: Option<Duration>,
    pub(super) fenced: bool,
    pub(super) owner: Who,
    pub(super) patience: Patience,
    pub(super) work: Duration,
    /// Re-enter in the middle of the section, in this mode.
    pub(super) nested: Option<LockMode>,
    pub(super) ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    One(&'static str),
    All([&'static str; 2]),
    Any([&'static str; 2]),
}

/// The owner of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Unnamed,
    /// One of its own.
    Own,
    /// An owner that another caller of the client has as well.
    Shared,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    Release,
    /// The release is dropped in the middle.
    HalfRelease(Patience),
    Drop,
}

impl Plan {
    pub(super) fn draw(menu: Menu, random: &mut Rng) -> Self {
        let (keys, modes) = menu.draw(random);
        let what = menu.draw_what(keys, random);
        let mode = modes[random.usize(..2)];
        let owner = match (what, random.u8(..10)) {
            (What::One(_), 0..2) => Who::Shared,
            (What::One(_), 2..6) => Who::Own,
            _ => Who::Unnamed,
        };
        let nested = match mode {
            // A read cannot be upgraded to a write, and a permit has one limit.
            LockMode::Read | LockMode::Permit(_) => mode,
            _ => modes[random.usize(..2)],
        };
        Self {
            what,
            mode,
            wait: millis(pick(random, &[0, 50, 500, 3_000, 10_000])),
            lease: match random.u8(..10) {
                0..2 => Lease::Fixed(millis(random.u64(50..400))),
                2..4 => Lease::Renewed(millis(1_000)),
                _ => Lease::Renewed(millis(400)),
            },
            max_hold: (random.u8(..6) == 0).then(|| millis(random.u64(50..600))),
            fenced: menu != Menu::Quorum && mode.is_exclusive() && random.u8(..5) < 2,
            owner,
            patience: patience(random, 300),
            work: millis(match random.u8(..10) {
                0 => random.u64(..1_500),
                1..4 => 0,
                _ => random.u64(..200),
            }),
            nested: (owner == Who::Own && random.bool()).then_some(nested),
            ending: match random.u8(..10) {
                0 => Ending::HalfRelease(patience(random, 30)),
                1..3 => Ending::Drop,
                _ => Ending::Release,
            },
        }
    }
}

pub(super) fn patience(random: &mut Rng, most: u64) -> Patience {
    match random.u8(..10) {
        0..2 => Patience::Time(millis(random.u64(..most))),
        2 => Patience::Polls(random.u32(..6)),
        _ => Patience::Endless,
    }
}

fn pick(random: &mut Rng, of: &[u64]) -> u64 {
    of[random.usize(..of.len())]
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

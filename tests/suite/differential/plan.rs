//! What is done to the stores.

use std::time::Duration;

use tower_distributed_lock::store::{Attempt, Fencing};
use tower_distributed_lock::{Hold, HoldId, LockKey, LockMode};
use uuid::Uuid;

/// Time passes in whole ticks, and whatever expires does so well between two of them: leases and retentions last a number
/// of ticks and a half, and the store's own constants (3 and 120 seconds) are 800 ms away from any tick.
pub(super) const TICK: Duration = Duration::from_millis(2200);

/// Longer than any sequence takes.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Longer than anything is remembered: a fair queue remembers the patience of all who are in it.
pub(super) const LONG: u32 = 40_000;

/// The names that are locked; the first two by exclusive locks, the others by read-write locks, mostly.
pub(super) const KEYS: [&str; 4] = ["account", "order{42}x", "document", "page{é}"];

/// A name that nobody locks.
pub(super) const SENTINEL: &str = "sentinel";

/// How many ask at the same time. By their numbers the first two are `Reentrant`, the next three `Fair`, the others read
/// and write.
const ACTORS: u64 = 8;

/// Whose hold of which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) key: usize,
    pub(super) actor: u64,
    /// Of those who read and write.
    pub(super) writes: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) who: Who,
    pub(super) patient: bool,
    /// How many tokens are reserved beside the one that is asked for.
    pub(super) fenced: Option<u32>,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Acquire(Ask),
    AcquireAll(Vec<Ask>),
    AcquireAny(Vec<Ask>),
    Renew(Vec<Who>),
    Check(Vec<Who>),
    Release(Who),
    /// With so many ticks and a half of retention.
    ReleaseRecording(Who, u32),
    Record(usize),
    Withdraw(Who, bool),
    Listen(Who),
    StopListening(Who),
    ForceUnlock(usize),
    Ticks(u32),
}

impl Step {
    /// Who asks for what.
    pub(super) fn asks(&self) -> &[Ask] {
        match self {
            Self::Acquire(ask) => std::slice::from_ref(ask),
            Self::AcquireAll(asks) | Self::AcquireAny(asks) => asks,
            _ => &[],
        }
    }
}

impl Who {
    pub(super) fn mode(self) -> LockMode {
        match (self.actor % ACTORS, self.writes) {
            (0..2, _) => LockMode::Reentrant,
            (2..5, _) => LockMode::Fair,
            (_, false) => LockMode::Read,
            (_, true) => LockMode::Write,
        }
    }

    pub(super) fn hold(self) -> Hold {
        Hold {
            key: LockKey::new(KEYS[self.key]),
            mode: self.mode(),
            id: HoldId::new(Uuid::from_u128(7), self.actor),
        }
    }

    /// The same for every attempt of one actor: a lease that is shortened later would leave the lives of a lock and of
    /// its readers apart in Redis, until the longest promise is over.
    pub(super) fn lease(self) -> Duration {
        half_past([1, 4, 9, 60][(self.actor / 2 % 4) as usize])
    }

    pub(super) fn attempt(self) -> Attempt {
        Attempt {
            hold: self.hold(),
            lease: self.lease(),
            patience: Some(PATIENCE),
            fencing: None,
        }
    }
}

impl Ask {
    pub(super) fn attempt(self) -> Attempt {
        let attempt = self.who.attempt();
        Attempt {
            patience: attempt.patience.filter(|_| self.patient),
            fencing: self.fenced.map(|reserve| Fencing {
                reserve,
                retention: (reserve > 0).then_some(half_past(10)),
            }),
            ..attempt
        }
    }
}

/// Whether whoever waits under this name has a place in a queue.
pub(super) fn queues(id: &str) -> bool {
    let actor = id.rsplit(':').next().and_then(|n| n.parse::<u64>().ok());
    (2..5).contains(&(actor.expect("an id ends in a number") % ACTORS))
}

pub(super) fn half_past(ticks: u32) -> Duration {
    TICK * ticks + TICK / 2
}

/// Draws steps.
pub(super) struct Plan {
    random: fastrand::Rng,
    keys: Vec<usize>,
    actors: Vec<u64>,
    /// Those who have asked, the latest last.
    asked: Vec<Who>,
    steps: Vec<Step>,
}

impl Plan {
    /// A sequence that depends on nothing but the seed. Few keys and actors meet often, many seldom: both are drawn.
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut keys: Vec<_> = (0..KEYS.len()).collect();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(1..=KEYS.len()));
        let mut actors: Vec<_> = (0..ACTORS).collect();
        random.shuffle(&mut actors);
        actors.truncate(random.usize(3..=actors.len()));
        let mut plan = Self {
            keys,
            actors,
            asked: Vec::new(),
            steps: Vec::new(),
            random,
        };
        for _ in 0..plan.random.usize(30..90) {
            let step = plan.step();
            plan.steps.push(step);
        }
        plan
    }

    pub(super) fn into_numbered(self) -> Vec<(usize, Step)> {
        self.steps.into_iter().enumerate().collect()
    }

    fn step(&mut self) -> Step {
        match self.random.u32(..100) {
            0..40 => Step::Acquire(self.ask()),
            40..44 => Step::AcquireAll(self.asks()),
            44..48 => Step::AcquireAny(self.asks()),
            48..54 => Step::Renew(self.some_who()),
            54..57 => Step::Check(self.some_who()),
            57..70 => Step::Release(self.who_asked()),
            70..73 => Step::ReleaseRecording(self.who_asked(), self.random.u32(1..20)),
            73..75 => Step::Record(self.key()),
            75..79 => Step::Withdraw(self.who_asked(), false),
            79..82 => self.vanish(),
            82..89 => Step::Listen(self.who_asked()),
            89..90 => Step::StopListening(self.who_asked()),
            90..92 => Step::ForceUnlock(self.key()),
            _ => Step::Ticks(match self.random.u32(..20) {
                0 => 60,
                1..4 => self.random.u32(3..12),
                _ => self.random.u32(1..3),
            }),
        }
    }

    fn ask(&mut self) -> Ask {
        let who = match self.random.u32(..10) {
            0..4 => self.who_asked(),
            _ => self.who(),
        };
        self.asked.retain(|other| *other != who);
        self.asked.push(who);
        Ask {
            who,
            patient: self.random.u32(..10) < 7,
            fenced: (self.random.u32(..4) == 0).then(|| self.random.u32(..3)),
        }
    }

    /// Several, each for another key.
    fn asks(&mut self) -> Vec<Ask> {
        let mut asks: Vec<Ask> = Vec::new();
        for _ in 0..self.random.u32(2..6) {
            let ask = self.ask();
            if asks.iter().all(|other| other.who.key != ask.who.key) {
                asks.push(ask);
            }
        }
        asks
    }

    /// An attempt went unanswered. Its actor mostly goes on under another number, as a client does.
    fn vanish(&mut self) -> Step {
        let who = self.who_asked();
        if self.random.u32(..10) < 7 {
            for actor in &mut self.actors {
                if *actor == who.actor {
                    *actor += ACTORS;
                }
            }
        }
        Step::Withdraw(who, true)
    }

    fn some_who(&mut self) -> Vec<Who> {
        (0..self.random.u32(1..4))
            .map(|_| self.who_asked())
            .collect()
    }

    /// Somebody who has asked lately, mostly.
    fn who_asked(&mut self) -> Who {
        let lately = &self.asked[self.asked.len().saturating_sub(12)..];
        match self.random.u32(..10) {
            0 => self.who(),
            _ => match self.random.choice(lately).copied() {
                Some(who) => who,
                None => self.who(),
            },
        }
    }

    fn who(&mut self) -> Who {
        let mut who = Who {
            key: self.key(),
            actor: self.actors[self.random.usize(..self.actors.len())],
            writes: self.random.u32(..5) < 2,
        };
        // Another family than the key is meant for, now and then.
        if self.random.u32(..12) != 0 {
            let fitting = |actor: &u64| (actor % ACTORS < 5) == (who.key < 2);
            let fitting: Vec<_> = self.actors.iter().copied().filter(fitting).collect();
            who.actor = self.random.choice(&fitting).copied().unwrap_or(who.actor);
        }
        who.writes &= who.actor % ACTORS >= 5;
        who
    }

    fn key(&mut self) -> usize {
        self.keys[self.random.usize(..self.keys.len())]
    }
}

//! Sequences of steps, drawn from a seed.

use super::step::{ACTORS, Ask, KEYS, LOCKERS, LOCKS, Step, Who, suits};

/// Draws steps.
pub(super) struct Plan {
    random: fastrand::Rng,
    keys: Vec<usize>,
    actors: Vec<u64>,
    /// The actors that have asked, the latest last.
    asked: Vec<Who>,
    steps: Vec<Step>,
}

impl Plan {
    /// A sequence that depends only on the seed, and on whether the stores have permits. The number of keys and actors is
    /// drawn as well: few meet often, many meet seldom. Of three sequences, one is about locks, one about permits, and one
    /// about both.
    pub(super) fn draw(seed: u64, permits: bool) -> Self {
        let (keys, actors) = match seed % 3 {
            1 if permits => (LOCKS..KEYS.len(), LOCKERS..ACTORS),
            2 if permits => (0..KEYS.len(), 0..ACTORS),
            _ => (0..LOCKS, 0..LOCKERS),
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut keys: Vec<_> = keys.collect();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(1..=keys.len()));
        let mut actors: Vec<_> = actors.collect();
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
            92..94 => self.set_permits(),
            _ => Step::Ticks(match self.random.u32(..20) {
                0 => 60,
                1..4 => self.random.u32(3..12),
                _ => self.random.u32(1..3),
            }),
        }
    }

    fn set_permits(&mut self) -> Step {
        let with_permits = self.keys.iter().copied().filter(|key| *key >= LOCKS);
        let with_permits: Vec<_> = with_permits.collect();
        match self.random.choice(&with_permits) {
            Some(key) => Step::SetPermits(*key, [None, Some(1), Some(3)][self.random.usize(..3)]),
            None => Step::Ticks(1),
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

    /// Several questions, each for another key.
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

    /// An attempt went unanswered. Its actor usually continues under another number, as a client does.
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

    /// An actor, usually one that has asked lately.
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
        let takes_permits = |actor: u64| actor % ACTORS >= LOCKERS;
        let others = takes_permits(who.actor) != (who.key >= LOCKS);
        // Sometimes a mode of another family than that of the key.
        if others || self.random.u32(..12) != 0 {
            let suiting = self.actors.iter().copied();
            let suiting: Vec<_> = suiting.filter(|actor| suits(*actor, who.key)).collect();
            match self.random.choice(&suiting).copied() {
                Some(actor) => who.actor = actor,
                None if others => who.actor = if who.key >= LOCKS { LOCKERS } else { 0 },
                None => {}
            }
        }
        who.writes &= (5..LOCKERS).contains(&(who.actor % ACTORS));
        who
    }

    fn key(&mut self) -> usize {
        self.keys[self.random.usize(..self.keys.len())]
    }
}

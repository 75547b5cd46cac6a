//! The history of all workers, from their events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::now;
use crate::event::{Began, Ended, Ending, Event, Missed, Mode};
use crate::section::{Section, Verdict, judge};

/// How long before its section a hold may have been granted, because holds are handed over.
const LOOK_BACK: u64 = 2_000_000_000;

/// The events of a run so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    keys: HashSet<Arc<str>>,
    open: HashMap<u64, (u64, Began)>,
    sections: Vec<Section>,
    pub(crate) granted: BTreeMap<Mode, u64>,
    pub(crate) endings: BTreeMap<Ending, u64>,
    pub(crate) missed: BTreeMap<Missed, u64>,
    pub(crate) broken: Vec<(String, String)>,
    pub(crate) done: u64,
    pub(crate) worst_wait: BTreeMap<Mode, Duration>,
    pub(crate) worst_release: Duration,
    /// The times of data losses.
    losses: Vec<(u64, u64)>,
}

impl History {
    /// Records an event of the worker of a `generation`.
    pub(crate) fn add(&mut self, generation: u64, event: Event) {
        match event {
            Event::Began(began) => {
                *self.granted.entry(began.mode).or_default() += 1;
                let waited = Duration::from_nanos(began.from - began.asked);
                let worst = self.worst_wait.entry(began.mode).or_default();
                *worst = waited.max(*worst);
                self.open.insert(began.id, (generation, began));
            }
            Event::Ended(ended) => {
                let (_, began) = self.open.remove(&ended.id).expect("what ends has begun");
                let released = Duration::from_nanos(ended.answered - ended.to);
                self.worst_release = self.worst_release.max(released);
                self.close(began, ended);
            }
            Event::Missed(missed) => *self.missed.entry(missed).or_default() += 1,
            Event::Broken { promise, text } => self.broken.push((promise, text)),
            Event::Done => self.done += 1,
        }
    }

    /// How many sections of a worker are under way.
    pub(crate) fn under_way(&self, generation: u64) -> usize {
        let open = self.open.values();
        open.filter(|(of, _)| *of == generation).count()
    }

    /// Records the death of a worker, which ends its sections.
    pub(crate) fn killed(&mut self, generation: u64, at: u64) {
        let open = std::mem::take(&mut self.open);
        for (id, (of, began)) in open {
            if of != generation {
                self.open.insert(id, (of, began));
                continue;
            }
            let ended = Ended {
                id,
                to: at.max(began.from),
                held: false,
                ending: Ending::Killed,
                answered: at,
            };
            self.close(began, ended);
        }
    }

    /// Records that a store lost its data between `from` and now.
    pub(crate) fn forgot(&mut self, from: u64) {
        self.losses.push((from, now()));
    }

    pub(crate) fn operations(&self) -> u64 {
        self.granted.values().sum::<u64>() + self.missed.values().sum::<u64>()
    }

    /// Whether any two sections have overlapped yet.
    pub(crate) fn has_overlaps(&self) -> bool {
        judge(self.sections.clone(), |_, _| false).overlaps > 0
    }

    /// The verdict about all sections.
    pub(crate) fn verdict(&mut self) -> Verdict {
        let losses = std::mem::take(&mut self.losses);
        let kept = |one: &Section, other: &Section| {
            let from = one.from.min(other.from).saturating_sub(LOOK_BACK);
            let to = one.to.min(other.to);
            !losses
                .iter()
                .any(|(began, ended)| *began <= to && *ended >= from)
        };
        judge(std::mem::take(&mut self.sections), kept)
    }

    fn close(&mut self, began: Began, ended: Ended) {
        *self.endings.entry(ended.ending).or_default() += 1;
        let key = match self.keys.get(&*began.key) {
            Some(known) => known.clone(),
            None => {
                let key: Arc<str> = began.key.into();
                self.keys.insert(key.clone());
                key
            }
        };
        self.sections.push(Section {
            key,
            excludes: began.mode.excludes(),
            permits: None,
            owner: began.owner,
            asked: began.asked,
            from: began.from,
            to: ended.to,
            held: ended.held,
            confirmed: ended.ending == Ending::Confirmed,
            token: began.token,
        });
    }
}

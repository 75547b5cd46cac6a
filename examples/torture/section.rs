//! Sections under locks, and the check for overlaps.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A piece of work under a lock: from after it was granted until before its release began.
///
/// All times are of one clock, in any unit.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) key: Arc<str>,
    pub(crate) excludes: bool,
    /// Under a permit: how many owners may overlap. `None`: `excludes` says whether they may.
    pub(crate) permits: Option<u32>,
    /// The owner. Sections of one owner may overlap by re-entry.
    pub(crate) owner: u64,
    /// The time of the request.
    pub(crate) asked: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Whether the lock was still held at `to`, by the guard's knowledge.
    pub(crate) held: bool,
    pub(crate) confirmed: bool,
    pub(crate) token: Option<u64>,
}

impl Section {
    /// Whether both overlap and must not.
    fn overlaps(&self, other: &Self) -> bool {
        (self.excludes || other.excludes)
            && self.owner != other.owner
            && self.from < other.to
            && other.from < self.to
    }
}

/// The result of the check of one run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The number of sections.
    pub(crate) sections: u64,
    /// The number of overlapping pairs, confirmed or not. Without any, the run proves nothing about confirmation.
    pub(crate) overlaps: u64,
    /// Promises that were broken, with the two sections that show it.
    pub(crate) broken: Vec<(&'static str, Section, Section)>,
}

/// Checks every pair of sections of one key. `kept` returns whether the store kept its data during both.
///
/// * S5, and S7 where one of them reads: two confirmed sections do not overlap.
/// * S1: two sections that did not lose their locks do not overlap, while the store keeps its data.
/// * Under permits, no more sections overlap than there are permits: S5 of confirmed ones, S1 of those that were held.
/// * S6: a later request has a larger token, if its hold still existed. The token of a lost hold is older, and resources
///   refuse it.
pub(crate) fn judge(sections: Vec<Section>, kept: impl Fn(&Section, &Section) -> bool) -> Verdict {
    let mut verdict = Verdict::default();
    let mut keys: BTreeMap<Arc<str>, Vec<Section>> = BTreeMap::new();
    for section in sections {
        verdict.sections += 1;
        keys.entry(section.key.clone()).or_default().push(section);
    }
    for mut sections in keys.into_values() {
        sections.sort_by_key(|section| section.from);
        compare_times(&sections, &kept, &mut verdict);
        compare_tokens(&sections, &kept, &mut verdict);
    }
    verdict
}

fn compare_times(
    sections: &[Section],
    kept: &impl Fn(&Section, &Section) -> bool,
    verdict: &mut Verdict,
) {
    let mut present: Vec<&Section> = Vec::new();
    for section in sections {
        present.retain(|other| other.to > section.from);
        for other in present.iter().filter(|other| other.overlaps(section)) {
            verdict.overlaps += 1;
            let mut breaks = |promise| {
                let pair = (promise, (*other).clone(), section.clone());
                verdict.broken.push(pair);
            };
            if other.confirmed && section.confirmed {
                breaks(if other.excludes && section.excludes {
                    "S5"
                } else {
                    "S7"
                });
            }
            if other.held && section.held && kept(other, section) {
                breaks("S1");
            }
        }
        compare_permits(&present, section, kept, verdict);
        present.push(section);
    }
}

/// `present` are the sections that overlap with the begin of `section`, all of them with each other.
fn compare_permits(
    present: &[&Section],
    section: &Section,
    kept: &impl Fn(&Section, &Section) -> bool,
    verdict: &mut Verdict,
) {
    let Some(limit) = section.permits else { return };
    let too_many = |counts: &dyn Fn(&Section) -> bool| {
        let others = present
            .iter()
            .filter(|other| counts(other) && other.owner != section.owner);
        let others: BTreeMap<u64, &Section> = others.map(|other| (other.owner, *other)).collect();
        let full = counts(section) && others.len() >= limit as usize;
        others.into_values().next().filter(|_| full)
    };
    verdict.overlaps += u64::from(too_many(&|_: &Section| true).is_some());
    let confirmed = too_many(&|one: &Section| one.confirmed).map(|other| ("S5", other));
    let held = too_many(&|one: &Section| one.held && kept(one, section)).map(|other| ("S1", other));
    for (promise, other) in confirmed.into_iter().chain(held) {
        let pair = (promise, other.clone(), section.clone());
        verdict.broken.push(pair);
    }
}

/// Compares tokens: a request after another grant has a larger token, or the token of its own owner.
fn compare_tokens(
    sections: &[Section],
    kept: &impl Fn(&Section, &Section) -> bool,
    verdict: &mut Verdict,
) {
    let granted: Vec<&Section> = sections.iter().filter(|one| one.token.is_some()).collect();
    let mut asking = granted.clone();
    asking.sort_by_key(|section| section.asked);
    let (mut next, mut largest) = (granted.iter().peekable(), None::<&Section>);
    for section in asking {
        while let Some(earlier) = next.next_if(|earlier| earlier.from < section.asked) {
            if largest.is_none_or(|largest| largest.token < earlier.token) {
                largest = Some(earlier);
            }
        }
        let Some(largest) = largest else { continue };
        let rises = largest.token < section.token
            || largest.token == section.token && largest.owner == section.owner;
        if !rises && (section.confirmed || section.held && kept(largest, section)) {
            let pair = ("S6", largest.clone(), section.clone());
            verdict.broken.push(pair);
        }
    }
}

//! What was done under locks, and whether it overlapped.

use std::collections::BTreeMap;

/// A piece of work under a lock: from after it was granted until before its release began.
///
/// Times are of one clock for everybody, in any unit.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) key: String,
    pub(crate) excludes: bool,
    /// Who worked. Sections of one owner may overlap: it re-enters.
    pub(crate) owner: u64,
    /// When the lock was asked for.
    pub(crate) asked: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) confirmed: bool,
    pub(crate) token: Option<u64>,
}

impl Section {
    /// Whether both worked at the same time, and must not.
    fn overlaps(&self, other: &Self) -> bool {
        (self.excludes || other.excludes)
            && self.owner != other.owner
            && self.from < other.to
            && other.from < self.to
    }
}

/// What the sections of one run prove.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// How many pairs overlapped, confirmed or not. Without any, nothing is proved about confirmation.
    pub(crate) overlaps: u64,
    /// Pairs that overlapped though both were confirmed: S5, or S7 if one of them read.
    pub(crate) confirmed: Vec<(Section, Section)>,
    /// Pairs whose later token is not larger: S6.
    pub(crate) unordered: Vec<(Section, Section)>,
}

/// Looks at every pair of sections of one key.
pub(crate) fn judge(sections: Vec<Section>) -> Verdict {
    let mut keys: BTreeMap<String, Vec<Section>> = BTreeMap::new();
    for section in sections {
        keys.entry(section.key.clone()).or_default().push(section);
    }
    let mut verdict = Verdict::default();
    for mut sections in keys.into_values() {
        sections.sort_by_key(|section| section.from);
        compare_times(&sections, &mut verdict);
        compare_tokens(&sections, &mut verdict);
    }
    verdict
}

fn compare_times(sections: &[Section], verdict: &mut Verdict) {
    let mut present: Vec<&Section> = Vec::new();
    for section in sections {
        present.retain(|other| other.to > section.from);
        for other in present.iter().filter(|other| other.overlaps(section)) {
            verdict.overlaps += 1;
            if other.confirmed && section.confirmed {
                verdict.confirmed.push(((*other).clone(), section.clone()));
            }
        }
        present.push(section);
    }
}

/// Whoever asks after somebody else was granted gets a larger token, unless it joins what its owner holds.
fn compare_tokens(sections: &[Section], verdict: &mut Verdict) {
    let mut asking: Vec<&Section> = sections.iter().filter(|one| one.token.is_some()).collect();
    // Sorted by grant already.
    let granted = asking.clone();
    asking.sort_by_key(|section| section.asked);
    let (mut next, mut largest) = (granted.iter().peekable(), None::<&Section>);
    for section in asking {
        while let Some(earlier) = next.next_if(|earlier| earlier.from < section.asked) {
            if largest.is_none_or(|largest| largest.token < earlier.token) {
                largest = Some(earlier);
            }
        }
        let Some(largest) = largest.filter(|largest| largest.token >= section.token) else {
            continue;
        };
        let joins = granted.iter().any(|outer| {
            outer.owner == section.owner
                && outer.token == section.token
                && outer.from < section.from
                && outer.to >= section.asked
        });
        if !joins {
            verdict.unordered.push((largest.clone(), section.clone()));
        }
    }
}

//! The table of `lua/README.md` is the protocol at a glance: it names each script once, with the keys and arguments of the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::slice;
use std::time::Duration;

use uuid::Uuid;

use super::channels::Channels;
use super::names::Name;
use super::script::{ALL, Call};
use super::{calls, many, rights};
use crate::lock::{Hold, HoldId, LockKey, LockMode};
use crate::store::{Attempt, Fencing, Record, Renewal, Want};

/// How many words there may be.
type Counts = BTreeSet<usize>;

/// The keys and the arguments of each script.
struct Table(Vec<(&'static str, [&'static str; 2])>);

impl Table {
    fn read() -> Self {
        let page = include_str!("../../../../lua/README.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows = rows.filter_map(|row| {
            let (name, row) = row.split_once("` | ")?;
            let mut columns = row.split(" | ");
            Some((name, [columns.next()?, columns.next()?]))
        });
        Self(rows.collect())
    }

    /// What the rows of these names allow in a column.
    fn allowed(&self, column: usize, is_named: impl Fn(&str) -> bool) -> Counts {
        let rows = self.0.iter().filter(|(name, _)| is_named(name));
        rows.flat_map(|(_, columns)| self.sequence(columns[column], column))
            .collect()
    }

    /// A comma separates words, `or` the alternatives of one. Notes are in parentheses.
    fn sequence(&self, text: &str, column: usize) -> Counts {
        let mut sums = Counts::from([0]);
        for word in parts(&without_notes(text), ", ") {
            let one: Counts = parts(word, " or ")
                .into_iter()
                .flat_map(|word| self.word(word.trim(), column))
                .collect();
            let added = sums.iter().flat_map(|sum| one.iter().map(move |n| sum + n));
            sums = added.collect();
        }
        sums
    }

    fn word(&self, word: &str, column: usize) -> Counts {
        if let Some(optional) = word.strip_prefix('[') {
            let optional = optional.strip_suffix(']').expect("a bracket ends");
            let mut counts = self.sequence(optional, column);
            counts.insert(0);
            return counts;
        }
        if let Some(other) = word.strip_prefix("as `") {
            return self.allowed(column, |name| Some(name) == other.strip_suffix('`'));
        }
        match word {
            "–" => Counts::from([0]),
            word if word.ends_with(" of each call") => {
                self.allowed(column, |name| name.ends_with("_ACQUIRE"))
            }
            _ => Counts::from([1]),
        }
    }
}

fn without_notes(text: &str) -> String {
    let mut depth = 0;
    let is_outside = |c: &char| {
        depth += i32::from(*c == '(');
        let is_outside = depth == 0;
        depth -= i32::from(*c == ')');
        is_outside
    };
    text.chars().filter(is_outside).collect()
}

/// Splits the text where it is outside of brackets.
fn parts<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, _) in text.match_indices(separator) {
        let count = |bracket| text[..at].matches(bracket).count();
        if count('[') == count(']') {
            parts.push(&text[from..at]);
            from = at + separator.len();
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Every call of a script, each mode with each number of words.
fn every_call() -> Vec<Call> {
    let (key, lease) = (LockKey::new("order:42"), Duration::from_secs(30));
    let limit = NonZeroU32::new(3);
    let mut made = vec![
        rights::question(None),
        rights::question(Some(Channels::Plain)),
        calls::record(&key, true),
        calls::inspect(&key),
    ];
    for publish in [Channels::Plain, Channels::Sharded] {
        made.push(calls::force(&key, publish));
        made.push(calls::set_permits(&key, limit, publish));
        for mode in [
            LockMode::Reentrant,
            LockMode::Fair,
            LockMode::Read,
            LockMode::Write,
            LockMode::Permit(NonZeroU32::MIN),
        ] {
            let id = HoldId::new(Uuid::nil(), 7);
            let key = key.clone();
            made.extend(about(&Hold { key, mode, id }, lease, publish));
        }
    }
    made
}

/// The calls about a hold.
fn about(hold: &Hold, lease: Duration, publish: Channels) -> Vec<Call> {
    let mut made = vec![calls::release(hold, publish)];
    if !calls::shares(hold.mode) {
        let record = Record::new("done", lease);
        made.push(calls::release_recording(hold, &record, publish));
    }
    for fencing in [None, Some(Fencing::new(None, 0))] {
        let attempt = Attempt {
            fencing,
            ..Attempt::new(hold.clone(), lease)
        };
        made.push(calls::acquire(&attempt, publish));
        made.push(calls::withdraw(&attempt, true, publish));
        made.push(many::acquire(slice::from_ref(&attempt), Want::All, publish));
    }
    let renewal = Renewal::new(hold.clone(), lease);
    let renew = |is_marked| calls::renew(&[&renewal], is_marked);
    made.extend([false, true].map(renew));
    made
}

#[test]
fn the_table_of_scripts_has_each_with_the_number_of_its_keys_and_arguments() {
    let table = Table::read();
    let named: Vec<_> = table.0.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>());

    let mut made: BTreeMap<_, [Counts; 2]> = BTreeMap::new();
    for call in every_call() {
        let [keys, args] = made.entry(call.digest()).or_default();
        keys.insert(call.keys().len());
        args.insert(call.args().len());
    }
    for (name, script) in ALL {
        let digest = script.call::<Name<'_>>([]).digest();
        let made = made
            .get(digest)
            .unwrap_or_else(|| panic!("no call of {name}"));
        for (column, what) in ["keys", "arguments"].into_iter().enumerate() {
            let allowed = table.allowed(column, |row| row == *name);
            assert_eq!(allowed, made[column], "{name}, {what}: left: README.md");
        }
    }
}

#[test]
fn a_row_of_the_table_is_read_whole() {
    let table = Table(vec![(
        "A_ACQUIRE",
        ["a, [b, [c, d] or [e] (f, g)], h or i", "–"],
    )]);
    let counts = |text| table.sequence(text, 0);
    assert_eq!(counts("as `A_ACQUIRE`"), Counts::from([2, 3, 4, 5]));
    assert_eq!(counts("x, keys of each call"), Counts::from([3, 4, 5, 6]));
    assert_eq!(table.sequence("as `A_ACQUIRE`", 1), Counts::from([0]));
    assert_eq!(counts("as `MISSING`"), Counts::new());
}

//! The output of callgrind, by the place of the source line, and by the function that is called.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};

/// The instructions of a whole run.
#[derive(Default)]
pub(super) struct Profile {
    places: BTreeMap<&'static str, u64>,
    /// Those of each function, with all that it calls, by its caller.
    calls: Calls<u64>,
    /// The sum of each event, by its name.
    events: HashMap<String, u64>,
}

/// Instructions by caller and called function.
pub(super) type Calls<N> = HashMap<(String, String), N>;

/// Names are written once, with a number: `fn=(12) name`, later `fn=(12)`.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    fn name(&mut self, text: &'a str) -> Result<&'a str> {
        let (number, name) = text.split_once(')').context("a number in parentheses")?;
        if !name.is_empty() {
            self.0.insert(number, name.trim_start());
        }
        self.0
            .get(number)
            .copied()
            .context("a name that was written")
    }
}

impl Profile {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (mut files, mut functions) = (Names::default(), Names::default());
        let (mut file, mut function, mut called) = ("", "", "");
        let mut is_call = false;
        let mut profile = Self {
            events: events(text)?,
            ..Self::default()
        };
        for line in text.lines() {
            match line.split_once('=') {
                Some(("fl" | "fi" | "fe", name)) => file = files.name(name)?,
                Some(("fn", name)) => function = functions.name(name)?,
                Some(("cfi" | "cfl", name)) => _ = files.name(name)?,
                Some(("cfn", name)) => called = functions.name(name)?,
                Some(("calls", _)) => is_call = true,
                _ if line
                    .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) =>
                {
                    let cost = line.split(' ').nth(1).context("a cost")?;
                    let cost: u64 = cost.parse()?;
                    if std::mem::take(&mut is_call) {
                        let call = (function.to_owned(), called.to_owned());
                        *profile.calls.entry(call).or_default() += cost;
                    } else {
                        *profile.places.entry(place(file, function)).or_default() += cost;
                    }
                }
                _ => {}
            }
        }
        Ok(profile)
    }

    /// The instructions of one of `operations`, of which `idle` has none.
    pub(super) fn minus(&self, idle: &Self, operations: usize) -> BTreeMap<&'static str, f64> {
        let places = self.places.iter().map(|(place, busy)| {
            let idle = idle.places.get(place).copied().unwrap_or_default();
            (*place, busy.saturating_sub(idle) as f64 / operations as f64)
        });
        places.filter(|(_, count)| *count >= 0.5).collect()
    }

    /// The events of one of `operations`, of which `idle` has none.
    pub(super) fn events_minus(&self, idle: &Self, operations: usize) -> HashMap<String, f64> {
        let events = self.events.iter().map(|(name, busy)| {
            let idle = idle.events.get(name).copied().unwrap_or_default();
            let count = busy.saturating_sub(idle) as f64 / operations as f64;
            (name.clone(), count)
        });
        events.collect()
    }

    /// The calls of one of `operations`, of which `idle` has none.
    pub(super) fn calls_minus(&self, idle: &Self, operations: usize) -> Calls<f64> {
        let calls = self.calls.iter().map(|(call, busy)| {
            let idle = idle.calls.get(call).copied().unwrap_or_default();
            let count = busy.saturating_sub(idle) as f64 / operations as f64;
            (call.clone(), count)
        });
        calls.collect()
    }
}

/// `events: Ir Dr …` has the names, and `totals: 12 34 …` the sums in their order.
fn events(text: &str) -> Result<HashMap<String, u64>> {
    let words = |start: &str| {
        let mut lines = text.lines();
        let words = lines.find_map(|line| line.strip_prefix(start));
        words.map(str::split_whitespace)
    };
    let names = words("events:").context("names of events")?;
    let sums = words("totals:").context("sums of events")?;
    let events = names.zip(sums);
    events
        .map(|(name, sum)| Ok((name.to_owned(), sum.parse()?)))
        .collect()
}

/// The floors of this crate, as ARCHITECTURE.md names them, and what else takes part. The first that is found counts.
const PLACES: [(&str, &str); 32] = [
    ("/malloc/", "allocator"),
    ("/alloc.rs", "allocator"),
    ("/sys/alloc/", "allocator"),
    ("memmove", "copies of memory"),
    ("memset", "copies of memory"),
    ("memcmp", "copies of memory"),
    ("clock_gettime", "clock"),
    ("/unix/time.rs", "clock"),
    ("/std/src/time.rs", "clock"),
    ("/core/src/time.rs", "clock"),
    ("/hashbrown-", "hash maps"),
    ("/hash/", "hash maps"),
    ("benches/harness/", "the bench itself"),
    ("/src/layer", "this crate: layer"),
    ("/src/key", "this crate: key"),
    ("/src/client", "this crate: client"),
    ("/src/contend", "this crate: contend"),
    ("/src/table", "this crate: table"),
    ("/src/hold", "this crate: hold"),
    ("/src/keeper", "this crate: keeper"),
    ("/src/release", "this crate: release"),
    ("/src/spawn", "this crate: spawn"),
    ("/src/guard", "this crate: guard"),
    ("/src/store", "this crate: store"),
    ("/src/lock", "this crate: lock"),
    ("/src/telemetry", "this crate: telemetry"),
    ("/tokio-", "tokio"),
    ("/tracing-", "tracing"),
    ("/redis-", "the Redis client"),
    ("/combine-", "the Redis client"),
    ("/axum", "axum, tower, http"),
    ("/registry/", "other crates"),
];

fn place(file: &str, function: &str) -> &'static str {
    let crates = ["/tower-", "/http-", "/hyper-", "/matchit-", "/http-body"];
    if file.contains("/registry/") && crates.iter().any(|name| file.contains(name)) {
        return "axum, tower, http";
    }
    let is_of_ours = |place: &str| place.starts_with("/src/");
    let found = PLACES.iter().find(|(part, _)| {
        // A dependency may have a file of the same name.
        file.contains(part) && !(is_of_ours(part) && file.contains("/registry/"))
    });
    match found {
        Some((_, place)) => place,
        None if function.contains("tower_distributed_lock::") => "standard library in this crate",
        None => "standard library",
    }
}

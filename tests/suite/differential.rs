//! The memory store is the specification: any sequence of operations on it and on a real Redis gives the same replies, the
//! same holders and waiters with the same remaining times, wakes the same listeners, and leaves nothing. So has the store
//! on PostgreSQL in the examples, which another crate would write.
//!
//! Sequences of operations are drawn from seeds. The first sequence with a difference is shrunk and printed with the
//! command that replays it:
//!
//! ```text
//! DIFFERENTIAL=17/3,8,12    runs steps 3, 8 and 12 of seed 17; DIFFERENTIAL=17 runs all of them
//! DIFFERENTIAL_SECONDS=600  draws more sequences than the few seconds' worth of every day
//! ```
//!
//! Time does not pass during a step in either world: see [`clock`]. The permitted differences between the stores, with
//! reasons, are in one table in [`seen`].

mod clock;
mod plan;
mod postgres;
mod seen;
mod shrink;
mod step;
mod world;
mod worlds;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use plan::Plan;
use seen::Seen;
use step::Step;
use worlds::Worlds;

/// The default duration of a run.
const SECONDS: u64 = 6;

/// How often each event must occur in a run, so that the agreement of the stores proves something.
const COVERAGE: &[(&str, usize)] = &[
    ("granted", 100),
    ("refused", 100),
    ("withdrawn before", 3),
    ("another family", 3),
    ("renewed or there", 20),
    ("gone", 20),
    ("heard", 5),
    ("all granted", 5),
    ("all refused", 5),
    ("any granted", 5),
    ("any refused", 3),
    ("recorded", 5),
    ("forced", 3),
    ("woken", 50),
];

/// The same, of stores that have permits.
const COVERAGE_OF_PERMITS: &[(&str, usize)] =
    &[("permits side by side", 100), ("waits for a permit", 100)];

/// A difference in a sequence.
#[derive(Debug)]
struct Difference {
    /// The step; `None`: at the end, when every actor has left.
    step: Option<usize>,
    text: String,
}

/// The memory store and another, in which every step is done.
trait Pair {
    /// Whether the other store has permits.
    const PERMITS: bool;

    /// Begins a sequence with nothing.
    fn begin(&mut self);

    /// Does a step in both, and looks around in them. `None` if the machine was so busy that time did not stand still
    /// meanwhile: then nothing can be said.
    fn take(&mut self, step: &Step) -> Option<(Seen, Seen)>;

    /// Every actor leaves, or dies; returns what is left that should not be.
    fn end(&mut self, all_leave: bool) -> Option<String>;
}

#[test]
fn every_sequence_of_operations_comes_out_alike_in_memory_and_in_redis() {
    let mut worlds = Worlds::new();
    come_out_alike(&mut worlds);
    worlds.no_client_listens();
}

#[test]
fn every_sequence_of_operations_comes_out_alike_in_memory_and_in_postgres() {
    come_out_alike(&mut postgres::Worlds::new());
}

fn come_out_alike<P: Pair>(worlds: &mut P) {
    if let Ok(replay) = std::env::var("DIFFERENTIAL") {
        let (seed, steps) = shrink::parse(&replay, P::PERMITS);
        let difference = come_out(worlds, seed, &steps, &mut BTreeMap::new());
        return fail_on(difference, worlds, seed, steps);
    }
    let seconds = std::env::var("DIFFERENTIAL_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut covered = BTreeMap::new();
    let mut seed = 0;
    while Instant::now() < until || lacking::<P>(&covered).is_some() && seed < 500 {
        let steps = Plan::draw(seed, P::PERMITS).into_numbered();
        let difference = come_out(worlds, seed, &steps, &mut covered);
        fail_on(difference, worlds, seed, steps);
        seed += 1;
    }
    eprintln!("{seed} sequences came out alike: {covered:?}");
    assert_eq!(lacking::<P>(&covered), None, "of {covered:?}");
}

/// The events that have occurred too rarely.
fn lacking<P: Pair>(covered: &BTreeMap<&'static str, usize>) -> Option<&'static str> {
    let seldom = |(what, often): &&(&'static str, usize)| {
        covered.get(what).copied().unwrap_or_default() < *often
    };
    let of_permits = COVERAGE_OF_PERMITS.iter().filter(|_| P::PERMITS);
    let mut wanted = COVERAGE.iter().chain(of_permits);
    wanted.find(seldom).map(|(what, _)| *what)
}

fn fail_on(
    difference: Option<Difference>,
    worlds: &mut impl Pair,
    seed: u64,
    steps: Vec<(usize, Step)>,
) {
    let Some(difference) = difference else { return };
    let (steps, difference) = shrink::shrink(steps, difference, |steps| {
        come_out(worlds, seed, steps, &mut BTreeMap::new())
    });
    panic!("{}", shrink::report(seed, &steps, &difference));
}

/// The number of steps that may be taken before an acknowledgement of the server is there.
const LATE: usize = 3;

/// Runs the steps in both worlds, and returns the difference. Counts the events.
fn come_out(
    worlds: &mut impl Pair,
    seed: u64,
    steps: &[(usize, Step)],
    covered: &mut BTreeMap<&'static str, usize>,
) -> Option<Difference> {
    let run = AssertUnwindSafe(|| {
        worlds.begin();
        for (index, (number, step)) in steps.iter().enumerate() {
            let before = &steps[index.saturating_sub(LATE)..index];
            let before = before.iter().map(|(_, step)| step);
            let Some((memory, other)) = worlds.take(step) else {
                *covered.entry("too slow to tell").or_default() += 1;
                return None;
            };
            memory.count(covered);
            if let Some(text) = Seen::difference(step, before, &memory, &other) {
                let step = Some(*number);
                return Some(Difference { step, text });
            }
        }
        let text = worlds.end(seed.is_multiple_of(2))?;
        Some(Difference { step: None, text })
    });
    // A broken assertion inside a store is a difference too.
    catch_unwind(run).unwrap_or_else(|_| {
        Some(Difference {
            step: None,
            text: "one of the stores panicked, see above".into(),
        })
    })
}

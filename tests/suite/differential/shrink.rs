//! Shrinks a long failing sequence to a short one.

use super::Difference;
use super::plan::Plan;
use super::step::Step;

type Steps = Vec<(usize, Step)>;

/// Removes steps that are not needed for the difference.
pub(super) fn shrink(
    mut steps: Steps,
    mut difference: Difference,
    mut come_out: impl FnMut(&[(usize, Step)]) -> Option<Difference>,
) -> (Steps, Difference) {
    let mut size = steps.len();
    while size > 0 {
        if let Some(last) = difference.step {
            steps.retain(|(number, _)| *number <= last);
        }
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + size).min(steps.len()));
            match come_out(&fewer) {
                Some(still) => (steps, difference) = (fewer, still),
                None => from += size,
            }
        }
        size /= 2;
    }
    (steps, difference)
}

/// Reports the short sequence, and the command that replays it.
pub(super) fn report(seed: u64, steps: &[(usize, Step)], difference: &Difference) -> String {
    let numbers: Vec<_> = steps.iter().map(|(number, _)| number.to_string()).collect();
    let numbers = numbers.join(",");
    let mut text = format!("seed {seed}, these steps alone come out differently:\n");
    for (number, step) in steps {
        text.push_str(&format!("{number:>4}  {step:?}\n"));
    }
    let after = difference
        .step
        .map_or("the end".into(), |step| format!("step {step}"));
    text.push_str(&format!("after {after}: {}\n", difference.text));
    text.push_str(&format!("to replay: DIFFERENTIAL={seed}/{numbers}"));
    text
}

/// Reads `17` or `17/3,8,12`.
pub(super) fn parse(replay: &str, permits: bool) -> (u64, Steps) {
    let (seed, numbers) = replay.split_once('/').unwrap_or((replay, ""));
    let seed = seed.parse().expect("DIFFERENTIAL begins with a seed");
    let mut steps = Plan::draw(seed, permits).into_numbered();
    if !numbers.is_empty() {
        let numbers: Vec<usize> = numbers
            .split(',')
            .map(|number| number.parse().expect("the number of a step"))
            .collect();
        steps.retain(|(number, _)| numbers.contains(number));
    }
    (seed, steps)
}

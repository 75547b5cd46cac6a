//! A profile by the steps of an operation: what the functions of each step take, with all that they call.

use super::path::Path;

/// A step. A function that the compiler put into its caller is not found, and counts for the rest.
struct Step {
    name: &'static str,
    /// Its functions, by a part of their names.
    functions: &'static [&'static str],
    /// Functions within these that belong to other rows.
    without: &'static [&'static str],
}

const REST: &str = "the rest: the request, its futures and its guard are made, moved and dropped";

const LAYER: &str =
    "the rest: what of the layer is in none of these functions, its futures, and the tasks";

const PAIR: [Step; 6] = [
    Step {
        name: "the store: its two transitions of the key",
        functions: &["StoreAtOnce>::acquire_now", "StoreAtOnce>::release_now"],
        without: &[],
    },
    Step {
        name: "the queue: its two transitions, with the attempt and the hold, which is registered",
        functions: &[
            "queue::Queues::enter_and_ask",
            "queue::share::Share::depart",
        ],
        without: &["StoreAtOnce>::acquire_now"],
    },
    Step {
        name: "the watchdog and the background: the hold is taken out",
        functions: &["HoldRelease<E>>::begin"],
        without: &["StoreAtOnce>::release_now"],
    },
    Step {
        name: "spans, metrics and the journal, while all of them are off",
        functions: &["guard::LockGuard::observed"],
        without: &[],
    },
    Step {
        name: "the name",
        functions: &["client::target::Target as core::convert::From"],
        without: &[],
    },
    Step {
        name: "the checks of the request",
        functions: &["client::request::LockRequest::check"],
        without: &[],
    },
];

/// The compiler may put the first into the task itself.
const CONNECTION: &[&str] = &["forward::Forward<", "multiplexed_connection::PipelineSink<"];

const REQUEST: [Step; 7] = [
    Step {
        name: "key",
        functions: &["as tower_distributed_lock::key::KeyExtractor>::extract"],
        without: &[],
    },
    Step {
        name: "client: the pair, from the request for the lock to its release",
        functions: &[
            "LockRequest::start::",
            "LockRequest::begin",
            "LockClient>::take::",
            "layer::confirm::confirm",
            "layer::confirm::Confirming",
        ],
        without: &[
            "redis::calls::acquire",
            "redis::calls::release",
            "redis::router::Router::call::",
        ],
    },
    Step {
        name: "client: the commands are composed",
        functions: &["redis::calls::acquire", "redis::calls::release"],
        without: &[],
    },
    Step {
        name: "client: the commands are sent, and their answers are awaited",
        functions: &["redis::router::Router::call::"],
        without: &[],
    },
    Step {
        name: "the task of a connection: it writes and reads",
        functions: CONNECTION,
        without: &[],
    },
    Step {
        name: "extensions of request and response: put in, and dropped with them",
        functions: &[
            "http::extensions::Extensions::insert",
            "http::extensions::Extensions::get_or_insert_with",
            "drop_in_place<http::request::Request",
            "drop_in_place<http::response::Response",
        ],
        without: &[],
    },
    Step {
        name: "handle",
        functions: &["guard::LockGuard::handle"],
        without: &[],
    },
];

const READ: [Step; 5] = [
    Step {
        name: "a share of the hold: the request, its place in the queue, its guard",
        functions: &["LockRequest::acquire::"],
        without: &["redis::router::Router::call::"],
    },
    Step {
        name: "the release, without its question",
        functions: &["guard::LockGuard::release::"],
        without: &["Background>::ask_about::"],
    },
    Step {
        name: "a place in the question, and its answer",
        functions: &["Background>::ask_about::"],
        without: &[],
    },
    Step {
        name: "its part of the question",
        // The loop around them may be in the future that polls it.
        functions: &[
            "Background>::ask_until_none_waits",
            "checks::OwnerChecks::next",
            "checks::by_hold",
            "checks::ask_all::",
            "checks::deliver",
        ],
        without: &[],
    },
    Step {
        name: "its part of the task of a connection",
        functions: CONNECTION,
        without: &[],
    },
];

pub(super) fn of_pair(pair: &Path) -> String {
    table(
        "a pair on the memory store, by steps",
        pair,
        &PAIR,
        None,
        vec![],
        REST,
    )
}

/// What a layer takes, beside what one takes that only boxes its future.
pub(super) fn of_request(what: &str, layer: &Path, boxed: &Path, bare: &Path) -> String {
    let first = vec![
        ("route, handler, and the request itself", bare.all()),
        ("what a layer that boxes adds", boxed.all() - bare.all()),
    ];
    let what = format!("{what}, by steps");
    table(&what, layer, &REQUEST, Some(boxed), first, LAYER)
}

pub(super) fn of_read(read: &Path) -> String {
    let what = "a hot read, shared and confirmed, by steps";
    table(what, read, &READ, None, vec![], REST)
}

fn table(
    what: &str,
    path: &Path,
    steps: &[Step],
    beside: Option<&Path>,
    mut rows: Vec<(&'static str, f64)>,
    rest: &'static str,
) -> String {
    for step in steps {
        let count = |path: &Path| inclusive(path, step.functions) - inclusive(path, step.without);
        let count = count(path) - beside.map_or(0.0, count);
        if count >= 0.5 {
            rows.push((step.name, count));
        }
    }
    let all = path.all();
    let known: f64 = rows.iter().map(|(_, count)| count).sum();
    rows.push((rest, all - known));
    rows.push(("all", all));
    let mut table = format!("| {what} | instructions | share |\n| --- | ---: | ---: |\n");
    for (name, count) in rows {
        let share = count / all * 100.0;
        table += &format!("| {name} | {count:.0} | {share:.0} % |\n");
    }
    table
}

/// What functions take, with all that they call. A call from one of them to another is in there already.
fn inclusive(path: &Path, functions: &[&str]) -> f64 {
    let is_one = |name: &str| functions.iter().any(|function| name.contains(function));
    let calls = path.calls.iter();
    let calls = calls.filter(|((caller, called), _)| is_one(called) && !is_one(caller));
    calls.map(|(_, count)| count).sum()
}

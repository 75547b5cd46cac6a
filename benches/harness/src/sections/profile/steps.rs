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

/// What both sides of the table's mutex take, with the hold that is made, placed in the wheel and taken out of it.
const TABLE: &[&str] = &["table::Table>::entry", "table::Table>::event"];

const IN_STORE: &[&str] = &[
    "MemoryStore as tower_distributed_lock::store::LockStore>::acquire",
    "MemoryStore::release_now",
];

/// The commands of a Redis store.
const COMPOSED: &[&str] = &["redis::calls::acquire", "redis::calls::release"];
const SENT: &[&str] = &["redis::router::Router::call::"];

/// The compiler may put the first into the task itself.
const CONNECTION: &[&str] = &["forward::Forward<", "multiplexed_connection::PipelineSink<"];

const PAIR: [Step; 5] = [
    Step {
        name: "the store: its two transitions of the key",
        functions: IN_STORE,
        without: &[],
    },
    Step {
        name: "the table: the three events of the key",
        functions: TABLE,
        without: &[],
    },
    Step {
        name: "spans and metrics, while all of them are off",
        functions: &["guard::LockGuard::observed", "LockRequest::observed"],
        without: &[],
    },
    Step {
        name: "the name",
        functions: &[
            "lock::resource_key::ResourceKey as core::convert::From",
            "lock::resource_key::ResourceKey::within",
        ],
        without: &[],
    },
    Step {
        name: "the checks of the request",
        functions: &["client::request::LockRequest::check"],
        without: &[],
    },
];

const REQUEST: [Step; 7] = [
    Step {
        name: "key",
        functions: &["key::erased::AnyKey::extract"],
        without: &[],
    },
    Step {
        name: "client: the pair, from the request for the lock to its release",
        functions: &[
            "LockRequest::start::",
            "LockRequest::begin",
            "LockRequest::check",
            "Acquisition>::finish",
            "guard::LockGuard::end",
            "guard::Releasing as core::future",
        ],
        without: &[
            "redis::calls::acquire",
            "redis::calls::release",
            "redis::router::Router::call::",
        ],
    },
    Step {
        name: "client: the commands are composed",
        functions: COMPOSED,
        without: &[],
    },
    Step {
        name: "client: the commands are sent, and their answers are awaited",
        functions: SENT,
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

const READ: [Step; 4] = [
    Step {
        name: "a share of the hold: the request, its place in the table, its guard",
        functions: &["LockRequest::acquire::"],
        without: SENT,
    },
    Step {
        name: "the release, without its question",
        functions: &["guard::LockGuard::end", "guard::Releasing"],
        without: SENT,
    },
    Step {
        name: "its part of the keeper, which asks for all of them",
        functions: &["keeper::keep::"],
        without: SENT,
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

//! Bugs of other lock clients.
//!
//! An exhibit is a situation that shows one bug. It runs twice: with the unchanged store, which must not show the bug,
//! and with the [`Flawed`] one that has it, which must show it. Time is paused.

mod holding;
mod permits;
mod waiting;
mod webhooks;

use tower_distributed_lock::LockClient;

use crate::support::{Flaw, Flawed};

/// The key of most exhibits.
const KEY: &str = "account:42";

/// The description of the bug that showed.
type Shown = String;

/// Runs `exhibit` without the bug and with it.
fn exhibit(bug: Flaw, exhibit: impl AsyncFn(Flawed) -> Result<(), Shown>) {
    let without = on_paused_time(exhibit(Flawed::new(Flaw::None)));
    assert_eq!(without, Ok(()), "{bug:?} is here");
    let with = on_paused_time(exhibit(Flawed::new(bug)));
    let shown = with.expect_err("the exhibit does not show the bug");
    println!("{bug:?}: {shown}");
}

fn on_paused_time<T>(exhibit: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(exhibit)
}

/// A client that stands for another process.
fn client(store: &Flawed) -> LockClient {
    LockClient::new(store.clone())
}

/// `Err` with `story` unless `fact`.
fn expect(fact: bool, story: &str) -> Result<(), Shown> {
    fact.then_some(()).ok_or_else(|| story.to_owned())
}

//! When the keeper asks the store: a script answers in its place.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::LockClient;
use crate::error::LockError;
use crate::exploration::script::Script;
use crate::guard::LockGuard;
use crate::lock::{Lease, Owner};
use crate::store::{HoldStatus, Renewal};

mod checks;
mod renewals;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The keys of a question.
fn keys(renewals: &[Renewal]) -> Vec<&str> {
    let keys = renewals.iter().map(|renewal| renewal.hold.key.as_str());
    keys.collect()
}

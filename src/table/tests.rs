//! One key, its requests, its tasks and the store's answers, as a world whose events tests choose. [`histories`] tries all sequences
//! of events, up to a length; the others are single histories.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::lock::{Lease, LockMode};
use crate::telemetry::Route;

mod entering;
mod events;
mod histories;
mod invariants;
mod owners;
mod reads;
mod shards;
mod shares;
mod slots;
mod snapshot;
mod steps;
mod tasks;
mod waking;
mod world;

use events::Event;
use world::{Place, World};

fn terms(mode: LockMode) -> Terms {
    Terms {
        mode,
        owner: None,
        lease: Lease::default(),
        max_hold: None,
        fenced: false,
        max_waiters: Some(8),
        wait: Duration::from_secs(30),
        route: Route::default(),
    }
}

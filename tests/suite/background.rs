//! The background work of a client: renewals, and the clean-up after drops.

mod cleanup;
mod refusals;
mod release;
pub(crate) mod runtimes;
mod shutdown;
mod slow;
mod watchdog;
mod wired;

//! Thousands of histories on paused time, with faults; each follows from its seed.
//!
//! Callers of several processes take locks over stores with injected faults, and each answer is compared with the
//! guarantees: locks of every kind over one store ([`mixed`]), permits ([`permits`]), the order of fair queues ([`fairness`]), a
//! quorum of stores ([`quorum`]), and requests that must be served once ([`idempotency`]). A seed that fails is printed with the command that
//! replays it and shows its trace. `SIMULATION_SCHEDULES=100000` makes a longer run.

mod fairness;
mod idempotency;
mod mixed;
mod permits;
mod quorum;

mod book;
mod caller;
mod checked_store;
mod checked_stores;
mod history;
mod impatient;
mod leaving;
mod life;
mod line;
mod log;
mod observed;
mod plan;
#[path = "../../examples/torture/section.rs"]
pub(crate) mod section;
mod seeds;
mod waits;
mod weather;
mod world;

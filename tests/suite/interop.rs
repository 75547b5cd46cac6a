//! A live Redisson and this crate share locks: every mode, both directions, both protocols (docs/protocol.md).
//!
//! Each scenario is written once, for [parties](party::Party), which are threads of a Redisson or clients of ours, and
//! runs for every pair of them and for names with and without braces, all at the same time.

mod admin;
mod cluster;
mod crash;
mod downgrade;
mod exclusion;
mod handover;
mod kind;
mod lockctl;
mod meeting;
mod namespace;
mod ownership;
mod party;
mod permits;
mod queue;
mod readers;
mod redisson;
mod shares;
mod tokens;
mod torture;

pub(crate) use crash::hoarder;
use kind::Kind;
use meeting::{LEASE, Meeting, WATCHDOG, aux};
use party::{Held, Party};

//! The health of a store: its connections, and their latency.

pub(crate) use super::connection_use::{COMMANDS, RENEWALS, WAKE_UPS};
pub(crate) use super::metrics::Counted as ConnectionUp;
pub(crate) use super::metrics::store::{
    answered, clock_offset, connected, failed, failed_over, unanswered,
};

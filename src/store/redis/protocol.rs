//! What the store says to a server, and what an answer means. Redisson fixes most of it.
//!
//! Nothing here opens, sends or waits, so all of it is tested without a server.

pub(super) mod calls;
pub(super) mod channels;
pub(super) mod failure;
pub(super) mod many;
pub(super) mod names;
pub(super) mod reply;
pub(super) mod rights;
pub(super) mod role;
pub(super) mod script;
pub(super) mod slot;

#[cfg(test)]
mod tests;

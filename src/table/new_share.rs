//! A share in a hold, as data.

use std::sync::Arc;

use crate::hold::Held;
use crate::lock::Owner;

/// A share in a hold, as data: the caller that gets it must end it.
#[derive(Debug)]
pub(crate) struct NewShare {
    pub(crate) held: Arc<Held>,
    pub(crate) owner: Option<Owner>,
    /// Whether the hold was passed from the request before, without the store.
    pub(crate) handed_over: bool,
}

//! Replaces `route.rs` while nothing is measured.

use std::sync::Arc;

pub(crate) use NoRoute as Route;

/// Stands for the route of a request, which is not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct NoRoute(());

impl NoRoute {
    pub(crate) fn new(_: Option<&str>) -> Self {
        Self(())
    }

    pub(crate) fn template(&self) -> Option<&Arc<str>> {
        None
    }
}

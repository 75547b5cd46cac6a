//! Replaces `route.rs` while nothing is measured.

use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub(crate) struct Route(());

impl Route {
    pub(crate) fn new(_: Option<&str>) -> Self {
        Self::default()
    }

    pub(crate) fn template(&self) -> Option<&Arc<str>> {
        None
    }
}

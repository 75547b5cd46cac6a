//! Replaces `route.rs` while nothing is measured.

#[derive(Debug, Clone, Default)]
pub(crate) struct Route(());

impl Route {
    pub(crate) fn new(_: Option<&str>) -> Self {
        Self::default()
    }
}

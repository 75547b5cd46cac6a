use std::sync::Arc;

/// The label of a request's measurements: the template of its route. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Route(Option<Arc<str>>);

impl Route {
    /// `None` outside of any route.
    pub(crate) fn new(template: Option<&str>) -> Self {
        Self(template.map(Arc::from))
    }

    /// The template; `None` outside of any route.
    pub(crate) fn template(&self) -> Option<&Arc<str>> {
        self.0.as_ref()
    }

    /// The template, or `none`.
    #[cfg(feature = "console")]
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("none")
    }
}

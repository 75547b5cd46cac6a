use std::cell::Cell;
use std::sync::Arc;

/// The label of a request's measurements: the template of its route. Cheap to clone, and one word long, because each hold has
/// one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Route(Option<Arc<Arc<str>>>);

impl Route {
    /// `None` outside of any route.
    pub(crate) fn new(template: Option<&str>) -> Self {
        Self(template.map(shared))
    }

    /// The template; `None` outside of any route.
    pub(crate) fn template(&self) -> Option<&Arc<str>> {
        self.0.as_deref()
    }
}

/// The template. Requests of one route that come one after the other on a thread share it.
fn shared(template: &str) -> Arc<Arc<str>> {
    thread_local! {
        static LATEST: Cell<Option<Arc<Arc<str>>>> = const { Cell::new(None) };
    }
    let latest = LATEST.try_with(Cell::take).ok().flatten();
    let latest = latest.filter(|latest| ***latest == *template);
    let shared = latest.unwrap_or_else(|| Arc::new(Arc::from(template)));
    // Fails while the thread ends: then nothing is cached.
    let _ = LATEST.try_with(|latest| latest.set(Some(shared.clone())));
    shared
}

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{LazyLock, PoisonError, RwLock};

/// The label of a request's measurements: the template of its route.
///
/// Each template is kept once and for ever, as its metrics are: there are as many as the program has routes. So a route is copied by
/// every hold, and no count of references is shared by all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Route(Option<&'static str>);

impl Route {
    /// `None` outside of any route.
    pub(crate) fn new(template: Option<&str>) -> Self {
        Self(template.map(kept))
    }

    /// One that the program names itself.
    pub(crate) fn named(label: &'static str) -> Self {
        Self(Some(label))
    }

    /// The template; `None` outside of any route.
    pub(crate) fn template(self) -> Option<&'static str> {
        self.0
    }
}

/// The template. Requests of one route that come one after the other on a thread find it at once.
fn kept(template: &str) -> &'static str {
    thread_local! {
        static LATEST: Cell<&'static str> = const { Cell::new("") };
    }
    // A thread that ends has none any more.
    let latest = LATEST.try_with(Cell::get).unwrap_or_default();
    if latest == template {
        return latest;
    }
    let kept = in_set(template);
    let _ = LATEST.try_with(|latest| latest.set(kept));
    kept
}

fn in_set(template: &str) -> &'static str {
    // Protects the set, whose entries are only added.
    static ALL: LazyLock<RwLock<HashSet<&'static str>>> = LazyLock::new(RwLock::default);
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = all.get(template) {
        return kept;
    }
    drop(all);
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = all.get(template) {
        return kept;
    }
    let kept = Box::leak(Box::from(template));
    all.insert(kept);
    kept
}

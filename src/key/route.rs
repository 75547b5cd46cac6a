use http::request::Parts;

use crate::telemetry::Route;

/// The route of a request, as its label.
pub(crate) fn route_of(parts: &Parts) -> Route {
    Route::new(template(parts))
}

/// The template of the axum route that a request has matched; `None` outside of any.
#[cfg(feature = "axum")]
pub(crate) fn template(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>()?;
    let template = matched.as_str();
    // Nested services and fallbacks match templates that axum makes itself.
    (!template.contains("__private__axum")).then_some(template)
}

/// There are no routes without axum.
#[cfg(not(feature = "axum"))]
pub(crate) fn template(_: &Parts) -> Option<&str> {
    None
}

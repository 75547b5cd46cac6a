use http::request::Parts;

use crate::key::{Keys, original_path, template};
use crate::lock::{LockKey, LockMode};

/// The name of a request's lock and record: its key, within method, route and tenant.
pub(super) fn name(parts: &Parts, tenant: Option<&str>, keys: Keys) -> LockKey {
    // No tenant is another one than the tenant without a name.
    let tenant = tenant.map_or(String::new(), |tenant| format!("={tenant}"));
    let scope = [parts.method.to_string(), route(parts), tenant];
    let keys = keys.targets(LockMode::Reentrant);
    let keys = keys.into_iter().map(|(key, _)| key.to_string());
    LockKey::from_parts("idempotency", scope.into_iter().chain(keys))
}

/// The template that axum has matched; else the path.
fn route(parts: &Parts) -> String {
    template(parts).map_or_else(|| original_path(parts), str::to_owned)
}

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use futures_util::FutureExt;
use http::request::Parts;

use super::route::template;
use super::{KeyError, KeyExtractor, Keys, check_length, compose};
use crate::lock::{LockKey, Resource};

/// A decoded parameter of the matched axum route, as text, as the name of a `resource`.
///
/// The key depends on the resource and not on the route: `/orders/{id}` and `/orders/{id}/refunds` lock the same order with
/// `key::param(ORDERS, "id")`, and a job locks it with `locks.lock(ORDERS.id(42))`: see [`Resource`].
///
/// A route without the parameter is an error in the program: 500 `lock-misconfigured`, and an error in the log, unless
/// [`OnMissing`](crate::OnMissing) of a [`DistributedLockLayer`](crate::DistributedLockLayer) decides otherwise. Add the layer to the
/// routes that have the parameter, by `route_layer`. A request that matches no route has no key (400).
///
/// **Wrong where the handler reads two texts as one value**: `Path<u64>` reads `1`, `01` and `+1` as the same order, and a file
/// system `a/b`, `a//b` and `a/./b` as the same file. Then use [`extract`](super::extract()).
pub fn param(resource: impl Into<Resource>, name: &'static str) -> impl KeyExtractor + Clone {
    let resource = resource.into();
    Param { resource, name }
}

#[derive(Clone)]
struct Param {
    resource: Resource,
    name: &'static str,
}

impl KeyExtractor for Param {
    async fn extract(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        let params = match template(parts) {
            Some(_) => params(parts)?,
            None => None,
        };
        let params = params.ok_or_else(|| {
            KeyError::missing_because("no route is matched where the layer of the lock is")
        })?;
        let mut values = params.iter().filter(|(name, _)| *name == self.name);
        match (values.next(), values.next()) {
            (Some((_, value)), None) => compose(self.resource, [value]),
            (None, _) => Err(KeyError::not_of_the_route(format!(
                "the route has no parameter `{}`: add the layer by `route_layer` to the routes that have it",
                self.name
            ))),
            (Some(_), Some(_)) => Err(KeyError::invalid(
                "the route names the parameter more than once",
            )),
        }
    }
}

/// The template, and the key of it and every parameter; `None` outside of any route.
pub(super) fn key_of_route(parts: &mut Parts) -> Option<(&str, Result<Keys, KeyError>)> {
    let params = params(parts);
    let template = template(parts)?;
    let keys = params.and_then(|params| {
        let values = || params.iter().flatten().map(|(_, value)| value);
        check_length(values())?;
        Ok(LockKey::from_parts(template, values()).into())
    });
    Some((template, keys))
}

/// `None` outside of any route.
fn params(parts: &mut Parts) -> Result<Option<RawPathParams>, KeyError> {
    let extracted = RawPathParams::from_request_parts(parts, &())
        .now_or_never()
        .expect("axum looks the parameters up without waiting");
    match extracted {
        Ok(params) => Ok(Some(params)),
        Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => {
            Err(KeyError::invalid("the path is not valid UTF-8"))
        }
        Err(_) => Ok(None),
    }
}

use std::future::{Future, ready};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use futures_util::FutureExt;
use http::request::Parts;

use super::route::template;
use super::{KeyError, KeyExtractor, Keys, compose};

/// A decoded parameter of the matched axum route, as text, as the name of a `resource`.
///
/// It names the resource whatever the route: `/orders/{id}` and `/orders/{id}/refunds` lock the same order with
/// `key::param("order", "id")`.
///
/// **Wrong where two texts are one thing to the handler**: `Path<u64>` takes `1`, `01` and `+1` for the same order. Then
/// use [`extract`](super::extract()).
pub fn param(resource: &'static str, name: &'static str) -> Param {
    Param { resource, name }
}

/// See [`param`].
#[derive(Debug, Clone, Copy)]
pub struct Param {
    resource: &'static str,
    name: &'static str,
}

impl KeyExtractor for Param {
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        ready(self.keys(parts))
    }
}

impl Param {
    fn keys(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        let missing = || {
            let reason = format!("the route has no parameter `{}`", self.name);
            KeyError::missing_because(reason)
        };
        let params = params(parts)?.ok_or_else(missing)?;
        let mut values = params
            .iter()
            .filter(|(name, _)| *name == self.name)
            .map(|(_, value)| value);
        let value = values.next().ok_or_else(missing)?;
        if values.next().is_some() {
            return Err(KeyError::invalid(
                "the route names the parameter more than once",
            ));
        }
        compose(self.resource, [value])
    }
}

/// The template and every parameter; `None` if no route was matched that deserves the name.
pub(super) fn key_of_route(parts: &mut Parts) -> Option<Result<Keys, KeyError>> {
    template(parts)?;
    let params = match params(parts) {
        Ok(params) => params,
        Err(error) => return Some(Err(error)),
    };
    let values = params.iter().flatten().map(|(_, value)| value);
    Some(compose(template(parts)?, values))
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

//! axum extractors: the lock of the layer, and locks that a handler takes by its signature.
//!
//! | extractor | gives | fails when |
//! |---|---|---|
//! | [`LockHandle`] | the lock that the layer holds around this request | there is none (500) |
//! | `Option<LockHandle>` | the same, or `None` | never |
//! | [`FencingToken`] | the token of that lock | the lock has none, or several keys (500) |
//! | [`Owner`] | who this request is to the lock client | never |
//! | [`Locked<T>`](Locked) | what `T` extracts, and the lock on what it names | `T` fails; the lock cannot be taken |
//!
//! Of nested layers, the lock is that of the innermost one that takes a lock for this request: one that skips it
//! ([`OnMissing::Skip`](crate::OnMissing::Skip), a mode of `None`) leaves the lock of
//! a layer further out. One that goes on because the store is unavailable
//! ([`OnUnavailable::Proceed`](crate::OnUnavailable::Proceed)) hides it, as the lock that the handler expects is not held.
//!
//! **A trap**: `middleware::from_extractor::<Locked<…>>()` drops the guard, and so releases the lock, before the handler
//! runs. Use the layer for that.

use std::convert::Infallible;
use std::sync::LazyLock;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use crate::error::LockError;
use crate::guard::LockHandle;
use crate::layer::{Rejection, RejectionLog};
use crate::lock::{FencingToken, Owner};
use crate::telemetry::Route;

mod locked;

pub use locked::{Lockable, Locked, LockedRejection};

/// It is logged as a layer logs its own: what a failure multiplies, once a minute.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        static LOG: LazyLock<RejectionLog> = LazyLock::new(RejectionLog::default);
        LOG.rejected(&self, &Route::default());
        response(self)
    }
}

/// The answer of a layer to the same error, for handlers that take locks themselves and return `Result<_, LockError>`. One answer
/// differs: permits that are in use are answered 423, as any lock that is in use, and by a layer and [`Locked`] 429.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        Rejection::from(self).into_response()
    }
}

/// Its rejection is [`Misconfigured`](crate::RejectionKind::Misconfigured): the program is not configured as the handler expects.
impl<S: Send + Sync> FromRequestParts<S> for LockHandle {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let lock = Self::of(&parts.extensions);
        lock.cloned().ok_or_else(|| misconfigured(NO_LOCK))
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for LockHandle {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(&parts.extensions).cloned())
    }
}

/// Its rejection is [`Misconfigured`](crate::RejectionKind::Misconfigured).
impl<S: Send + Sync> FromRequestParts<S> for FencingToken {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        let handle = <LockHandle as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        if handle.keys().nth(1).is_some() {
            return Err(misconfigured(SEVERAL_TOKENS));
        }
        let token = handle.fencing_token();
        token.ok_or_else(|| misconfigured(NO_TOKEN))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Owner {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(owner(parts))
    }
}

const NO_LOCK: &str = "no lock is held around this request. Is `DistributedLockLayer` enabled? Extract `Option<LockHandle>` where it \
     lets requests pass";
const NO_TOKEN: &str =
    "the lock has no fencing token. Is `DistributedLockLayer::fenced` set, and the mode exclusive?";
const SEVERAL_TOKENS: &str = "the lock has several keys. Extract `LockHandle`, whose `fencing_tokens` names each key with its token";

/// The text is advice for the programmer: it is logged as an error, and not sent.
fn misconfigured(advice: &'static str) -> Rejection {
    LockError::invalid(advice).into()
}

fn response(rejection: Rejection) -> Response {
    let mut response = rejection.to_response().into_response();
    response.extensions_mut().insert(rejection);
    response
}

fn owner(parts: &mut Parts) -> Owner {
    Owner::of(&mut parts.extensions).clone()
}

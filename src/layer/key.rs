//! Where a request names what is to be locked.
//!
//! **Two requests must get the same key whenever the handler would touch the same resource.** A key that is finer than
//! the handler's idea of identity can be evaded by spelling: `1`, `01`, `+1` and `%31` all reach `Path<u64>` as 1. From
//! the safest to the finest:
#![cfg_attr(
    feature = "axum",
    doc = "
| extractor | two requests share a key when |
|---|---|
| [`extract`] over a typed axum extractor | the closure returns equal keys for what was extracted |
| [`param`] | the decoded parameter is the same text |
| [`DefaultKey`] | they match the same route and all decoded parameters are the same text |
| [`header`] | the header's value is the same text |
| [`path`] | the paths are equal but for needless percent-encoding |"
)]
#![cfg_attr(
    not(feature = "axum"),
    doc = "
| extractor | two requests share a key when |
|---|---|
| a closure over `&Parts` | the closure returns equal keys |
| [`header`] | the header's value is the same text |
| [`path`], [`DefaultKey`] | the paths are equal but for needless percent-encoding |"
)]
//!
//! A closure over `&Parts` is an extractor too. It returns a [`LockKey`], or a `(LockKey, LockMode)` with a mode of its
//! own, or an `Option`, `Vec`, array or `Result` of those; several keys are locked together. A tenant belongs into the
//! key from the server's own state, such as an extension that the authentication has set, never from a header that the
//! client controls.
//!
//! Names that an extractor *derives* bear the mode's family, because an exclusive and a read-write lock must never meet
//! on one name: read-write names end in `@rw` ([`derived`] computes them for code outside of requests). Keys that a
//! closure *returns* are taken as they are.

use std::future::{Future, ready};

use http::Response;
use http::request::Parts;
use http_body::Body;

use super::body::{BoxError, LocalBody};
use super::rejection::{Refusal, Rejection, RejectionKind};
use crate::lock::{LockFamily, LockMode};
use crate::name::LockKey;

mod default;
#[cfg(feature = "axum")]
mod extract;
mod header;
#[cfg(feature = "axum")]
mod param;
mod path;

pub use default::DefaultKey;
#[cfg(feature = "axum")]
pub use extract::{Extract, KeyFn, extract};
pub use header::{Header, header};
#[cfg(feature = "axum")]
pub use param::{Param, param};
pub use path::{Path, path};

/// More raw input than this (bytes) names nothing sensible.
const MAX_INPUT: usize = 4096;

/// Finds what a request names as locked.
///
/// Closures over `&Parts` implement it:
///
/// ```
/// # use http::request::Parts;
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, LockKey, MemoryStore};
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// # let locks = LockClient::new(MemoryStore::new());
/// DistributedLockLayer::new(locks).key(|parts: &Parts| {
///     let tenant = parts.extensions.get::<Tenant>()?;
///     Some(LockKey::from_parts("tenant", [&tenant.0]))
/// })
/// # ;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what a request locks",
    note = "use an extractor of `tower_distributed_lock::key`, or a closure `|parts: &Parts| …` \
            returning a `LockKey`, or an `Option`, `Vec`, array or `Result` of those"
)]
pub trait KeyExtractor: Send + Sync {
    /// The keys of this request; none at all is the business of [`OnMissing`](super::OnMissing).
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send;
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync,
    R: IntoKeys,
{
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        ready(self(parts).into_keys())
    }
}

/// What a request names as locked: no key, one, or several that are locked together.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<Name>);

#[derive(Debug, Clone)]
struct Name {
    key: LockKey,
    mode: Option<LockMode>,
    derived: bool,
}

impl Keys {
    /// A name that is derived from the request, and is to bear the mode's family.
    pub fn derived(key: LockKey) -> Self {
        Self(vec![Name {
            key,
            mode: None,
            derived: true,
        }])
    }

    /// Whether the request names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What to lock and how, where `mode` is that of keys without one of their own.
    pub(super) fn targets(self, mode: LockMode) -> Vec<(LockKey, LockMode)> {
        self.0
            .into_iter()
            .map(|name| {
                let mode = name.mode.unwrap_or(mode);
                match name.derived {
                    true => (derived(name.key, mode.family()), mode),
                    false => (name.key, mode),
                }
            })
            .collect()
    }
}

/// The name under which the layer locks a key that it derived itself, so that code outside of requests can take the same
/// lock.
///
/// ```
/// use tower_distributed_lock::key::{LockKey, derived};
/// use tower_distributed_lock::LockFamily;
///
/// // What `key::param("order", "id")` locks for GET and PUT on order 42:
/// let key = derived(LockKey::from_parts("order", ["42"]), LockFamily::ReadWrite);
/// assert_eq!(key.as_str(), "order:42@rw");
/// ```
pub fn derived(key: LockKey, family: LockFamily) -> LockKey {
    match family {
        LockFamily::Exclusive => key,
        // A composed name never contains a bare `@`.
        LockFamily::ReadWrite => LockKey::new(format!("{key}@rw")),
    }
}

/// What a closure may return to name keys.
///
/// A plain string does not do: say [`LockKey::from_parts`] for what strangers may have chosen, [`LockKey::new`] for what
/// the program chose itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no keys",
    note = "return a `LockKey`, a `(LockKey, LockMode)`, or an `Option`, `Vec`, array or `Result` of those"
)]
pub trait IntoKeys {
    /// The keys, or why there are none.
    fn into_keys(self) -> Result<Keys, KeyError>;
}

impl IntoKeys for Keys {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(self)
    }
}

impl IntoKeys for LockKey {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(Keys(vec![Name {
            key: self,
            mode: None,
            derived: false,
        }]))
    }
}

impl IntoKeys for (LockKey, LockMode) {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(Keys(vec![Name {
            key: self.0,
            mode: Some(self.1),
            derived: false,
        }]))
    }
}

impl<T: IntoKeys> IntoKeys for Option<T> {
    fn into_keys(self) -> Result<Keys, KeyError> {
        self.map_or_else(|| Ok(Keys::default()), T::into_keys)
    }
}

impl<T: IntoKeys> IntoKeys for Vec<T> {
    fn into_keys(self) -> Result<Keys, KeyError> {
        all(self)
    }
}

impl<T: IntoKeys, const N: usize> IntoKeys for [T; N] {
    fn into_keys(self) -> Result<Keys, KeyError> {
        all(self)
    }
}

impl<T: IntoKeys, E: Into<KeyError>> IntoKeys for Result<T, E> {
    fn into_keys(self) -> Result<Keys, KeyError> {
        self.map_err(E::into)?.into_keys()
    }
}

fn all<T: IntoKeys>(items: impl IntoIterator<Item = T>) -> Result<Keys, KeyError> {
    let mut keys = Keys::default();
    for item in items {
        keys.0.extend(item.into_keys()?.0);
    }
    Ok(keys)
}

/// Why a request names no key.
#[derive(Debug)]
pub struct KeyError(Cause);

#[derive(Debug)]
enum Cause {
    Missing,
    Invalid(&'static str),
    Response(Box<Response<LocalBody>>),
}

impl KeyError {
    /// There is none: the business of [`OnMissing`](super::OnMissing).
    pub fn missing() -> Self {
        Self(Cause::Missing)
    }

    /// What is there names nothing: 400 `key-invalid`. The client gets to read `reason`.
    pub fn invalid(reason: &'static str) -> Self {
        Self(Cause::Invalid(reason))
    }

    /// The request is answered with `response`.
    pub fn response<B>(response: Response<B>) -> Self
    where
        B: Body<Data = bytes::Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Cause::Response(Box::new(response.map(LocalBody::new))))
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self.0, Cause::Missing)
    }

    pub(super) fn into_refusal(self) -> Refusal {
        match self.0 {
            Cause::Missing => Rejection::new(RejectionKind::KeyMissing).into(),
            Cause::Invalid(reason) => Rejection::new(RejectionKind::KeyInvalid)
                .with_detail(reason)
                .into(),
            Cause::Response(mut response) => {
                let rejection =
                    Rejection::new(RejectionKind::KeyRejected).with_status(response.status());
                response.extensions_mut().insert(rejection);
                Refusal::Response(response)
            }
        }
    }
}

/// Composes a derived key of input that strangers chose.
fn compose<'a>(
    resource: &str,
    components: impl IntoIterator<Item = &'a str>,
) -> Result<Keys, KeyError> {
    let components: Vec<_> = components.into_iter().collect();
    if components
        .iter()
        .map(|component| component.len())
        .sum::<usize>()
        > MAX_INPUT
    {
        return Err(KeyError::invalid("it is too long"));
    }
    Ok(Keys::derived(LockKey::from_parts(resource, components)))
}

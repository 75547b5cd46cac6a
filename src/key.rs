//! Key extractors: they name what a request locks.
//!
//! **Two requests must get the same key whenever the handler would touch the same resource.** Where a
//! key distinguishes spellings that the handler does not, a client evades the lock by another spelling: `1`, `01`, `+1` and `%31`
//! all reach `Path<u64>` as 1. From the safest extractor to the one that distinguishes most:
//!
//! | extractor | two requests share a key when |
//! |---|---|
//! | [`extract`](fn.extract.html) over a typed axum extractor | the closure returns equal keys for what was extracted |
//! | [`param`](fn.param.html) | the decoded parameter is the same text |
//! | a closure over `&Parts` | the closure returns equal keys |
//! | [`DefaultKey`] | they match the same axum route and all decoded parameters are the same text; outside of routes as for [`path`] |
//! | [`header`] | the header's value is the same text |
//! | [`json_field`] | the field of the body is the same text or number |
//! | [`path`] | the paths are equal but for needless percent-encoding |
//!
//! `extract` and `param` need the feature `axum`.
//!
//! A closure over `&Parts` is an extractor too. It returns a [`LockKey`], or a `(LockKey, LockMode)` with a mode of its own, or an
//! `Option`, `Vec`, array or `Result` of those; several keys are locked together. So are those of an array or a pair of extractors,
//! each of which must have a key: a closure for an optional second key returns `[Some(first), second]`. Take a tenant from the
//! server's own state, such as an extension that the authentication has set, never from a header that the client controls.
//!
//! An extractor takes its resource as a [`Resource`], which the client and the admin share, or as a name.
//! Code outside of requests locks the same name in a mode of the same family.

use std::future::ready;

use http::request::Parts;

use crate::lock::Resource;

mod body;
mod default;
mod erased;
mod error;
#[cfg(feature = "axum")]
mod extract;
mod header;
mod json;
mod keys;
#[cfg(feature = "axum")]
mod param;
mod path;
mod route;

pub(crate) use body::{RequestBody, key_of_fields};
pub use body::{body, json_field};
pub use default::DefaultKey;
pub(crate) use erased::AnyKey;
pub(crate) use error::Cause;
pub use error::KeyError;
#[cfg(feature = "axum")]
pub use extract::{KeyFn, extract, extract_with_state};
pub use header::header;
pub(crate) use header::only_line;
pub use keys::{IntoKeys, Keys};
#[cfg(feature = "axum")]
pub use param::param;
pub use path::path;
pub(crate) use path::{original_path, original_query};
pub(crate) use route::{route_of, template};

pub use crate::lock::LockKey;

/// The longest raw input of a key, in bytes.
const MAX_INPUT: usize = 4096;

/// Extracts the keys that a request locks.
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
            returning a `LockKey`, or an `Option`, `Vec`, array or `Result` of those",
    note = "`key::extract` takes extractors of the head (`FromRequestParts`), and not `Json`: `key::json_field` and `key::body` \
            read the body"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The keys of this request. If there is none, [`OnMissing`](crate::OnMissing) decides about the request.
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send;
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: IntoKeys,
{
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        ready(self(parts).into_keys())
    }
}

/// Their keys, which are locked together, in an order that cannot deadlock. If one of them has no key,
/// [`OnMissing`](crate::OnMissing) decides about the whole request, which then has none of the others.
impl<K: KeyExtractor, const N: usize> KeyExtractor for [K; N] {
    async fn extract(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        let mut keys = Vec::with_capacity(N);
        for extractor in self {
            keys.push(some(extractor, parts).await?);
        }
        keys.into_keys()
    }
}

/// Their keys, which are locked together, in an order that cannot deadlock. If one of them has no key,
/// [`OnMissing`](crate::OnMissing) decides about the whole request, which then has none of the others.
///
/// An extractor of the body, such as [`json_field`], stands first: what stands before it runs twice, before the body is read and after.
impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    async fn extract(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        let (first, second) = (some(&self.0, parts).await?, some(&self.1, parts).await?);
        [first, second].into_keys()
    }
}

/// The keys of one of several extractors, at least one.
async fn some(extractor: &impl KeyExtractor, parts: &mut Parts) -> Result<Keys, KeyError> {
    let keys = extractor.extract(parts).await?;
    match keys.is_empty() {
        true => Err(KeyError::missing()),
        false => Ok(keys),
    }
}

/// Composes a key from a resource and from input that the client chose.
pub(crate) fn compose<'a>(
    resource: Resource,
    components: impl IntoIterator<Item = &'a str> + Clone,
) -> Result<Keys, KeyError> {
    check_length(components.clone())?;
    resource.of(components).into_keys()
}

fn check_length<'a>(components: impl IntoIterator<Item = &'a str>) -> Result<(), KeyError> {
    let lengths = components.into_iter().map(str::len);
    match lengths.sum::<usize>() > MAX_INPUT {
        true => Err(KeyError::invalid("the key is too long")),
        false => Ok(()),
    }
}

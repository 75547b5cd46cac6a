use bytes::Bytes;
use http::request::Parts;

use super::json::{JsonValue, field};
use super::{KeyError, KeyExtractor, Keys, compose};
use crate::lock::Resource;

/// The request's body, in the extensions while the layer extracts the key from it.
#[derive(Debug, Clone)]
pub(crate) struct RequestBody(pub(crate) Bytes);

/// The request's body, for closures that take the key from it.
///
/// It is present for the key extractor of a layer that reads the body first: a
/// [`DistributedLockLayer`](crate::DistributedLockLayer) without [`stream_body`](crate::DistributedLockLayer::stream_body), and an
/// [`IdempotencyLayer`](crate::IdempotencyLayer). It is present only while the key is extracted: other closures, such as `tenant`
/// and `rejection`, and layers further in do not see it.
///
/// A layer cannot know the key before it has read the body, so only then does it ask whether the queue of the key is full and the store
/// is up. After [`LockClient::shutdown`](crate::LockClient::shutdown) it refuses the request without reading its body.
///
/// ```
/// # use http::request::Parts;
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
/// use tower_distributed_lock::LockKey;
/// use tower_distributed_lock::key::{self, KeyError};
///
/// # let locks = LockClient::new(MemoryStore::new());
/// DistributedLockLayer::new(locks).key(|parts: &Parts| {
///     let [from, to, ..] = **key::body(parts)? else {
///         return Err(KeyError::invalid("the body is too short"));
///     };
///     Ok([from, to].map(|account| LockKey::from_parts("lock:account", [account.to_string()])))
/// })
/// # ;
/// ```
///
/// # Errors
///
/// Returns a [`KeyError`] if the body was not read yet. Return that error: the layer then reads the body and calls the extractor
/// again, so what precedes this call runs twice. A layer that leaves the body to the handler answers 500 `lock-misconfigured`,
/// because the program is wrong.
pub fn body(parts: &Parts) -> Result<&Bytes, KeyError> {
    match parts.extensions.get() {
        Some(RequestBody(body)) => Ok(body),
        None => Err(KeyError::body_unread()),
    }
}

/// A field of the request's JSON body, by its JSON Pointer (RFC 6901), as the name of a `resource`:
/// `json_field("lock:order", "/order/id")`.
///
/// The body must have been read: see [`body`]. Text and numbers are names; `1` and `"1"` are the same name. An absent or
/// `null` field is a missing key. Empty text and any other value are refused (400 `key-invalid`), and so is a body that is not JSON.
///
/// **Wrong where the handler reads the field more leniently than its text**, and for bodies with repeated fields: the last
/// one counts here. An array of extractors locks several fields:
///
/// ```
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
/// use tower_distributed_lock::{Resource, key};
///
/// # let locks = LockClient::new(MemoryStore::new());
/// const ACCOUNTS: Resource = Resource::new("lock:account");
///
/// DistributedLockLayer::new(locks).key(["/from", "/to"].map(|field| key::json_field(ACCOUNTS, field)))
/// # ;
/// ```
///
/// # Panics
///
/// If `pointer` is not a JSON Pointer: it is empty, or begins with `/`.
#[track_caller]
pub fn json_field(
    resource: impl Into<Resource>,
    pointer: &'static str,
) -> impl KeyExtractor + Clone {
    assert!(
        pointer.is_empty() || pointer.starts_with('/'),
        "`{pointer}` is not a JSON Pointer: write `/{pointer}`"
    );
    let resource = resource.into();
    move |parts: &Parts| key_of_fields(parts, resource, [pointer])
}

/// The key of several fields of the request's JSON body, by their JSON Pointers, which together form one name.
pub(crate) fn key_of_fields<const N: usize>(
    parts: &Parts,
    resource: Resource,
    pointers: [&str; N],
) -> Result<Keys, KeyError> {
    let body = body(parts)?;
    let fields = pointers.map(|pointer| match field(body, pointer) {
        Ok(JsonValue::Name(name)) if name.is_empty() => {
            Err(KeyError::invalid("the field is empty"))
        }
        Ok(JsonValue::Name(name)) => Ok(name),
        Ok(JsonValue::Absent) => Err(KeyError::missing_because(format!(
            "the body has no field `{pointer}`"
        ))),
        Ok(JsonValue::Other) => Err(KeyError::invalid("the field is neither text nor a number")),
        Err(_) => Err(KeyError::invalid("the body is not JSON")),
    });
    let fields: Vec<String> = fields.into_iter().collect::<Result<_, _>>()?;
    compose(resource, fields.iter().map(String::as_str))
}

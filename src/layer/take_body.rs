//! The key of a request, and its body, which is read where the key is in it.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method};
use http_body::Body;

use super::DistributedLockLayer;
use super::body_budget::{BodyBudget, Room};
use super::body_reader::read;
use super::rejection::{Rejection, RejectionKind};
use crate::error::BoxError;
use crate::key::{AnyKey, KeyError, Keys, RequestBody};
use crate::lock::LockKey;
use sealed::Take;

/// A layer that serves requests with the body `B`. By default it reads the body before it asks for the lock, so it must be able to
/// make a new body of the bytes. After [`stream_body`](DistributedLockLayer::stream_body) it takes any body. The trait is sealed.
///
/// ```
/// # use bytes::Bytes;
/// # use http_body_util::{Empty, Full};
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, layer::TakesBody};
/// # fn serves<B>(_: impl TakesBody<B>) {}
/// # let locks = LockClient::new(MemoryStore::new());
/// serves::<Full<Bytes>>(DistributedLockLayer::new(locks.clone()));
/// serves::<Empty<Bytes>>(DistributedLockLayer::new(locks).stream_body());
/// ```
///
/// An `Empty` body cannot be made of bytes, so this does not compile:
///
/// ```compile_fail
/// # use bytes::Bytes;
/// # use http_body_util::{Empty, Full};
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, layer::TakesBody};
/// # fn serves<B>(_: impl TakesBody<B>) {}
/// # let locks = LockClient::new(MemoryStore::new());
/// serves::<Empty<Bytes>>(DistributedLockLayer::new(locks)); // call `stream_body`
/// ```
#[diagnostic::on_unimplemented(
    message = "a `DistributedLockLayer` cannot read a request's body of the type `{B}` before its lock is requested",
    label = "call `stream_body` on the layer, which leaves the body to the handler",
    note = "call `stream_body` on the layer to leave the body to the handler, or make it one that comes `From<Bytes>`, as \
            `axum::body::Body` does",
    note = "on axum, put layers that change the request's body (a limit, a time-out, decompression) into a `.layer` call of their \
            own, or `.map_request(|request: Request<_>| request.map(Body::new))` before this layer"
)]
pub trait TakesBody<B>: Take<B> {}

#[diagnostic::do_not_recommend]
impl<B, L: Take<B>> TakesBody<B> for L {}

mod sealed {
    use super::{Parts, Taken};

    /// How a layer takes a body.
    pub trait Take<B> {
        /// Whether there is something to read before the lock is requested.
        fn reads(parts: &Parts, body: &B) -> bool;

        /// The body for the handler, and its bytes if they were read.
        fn take(parts: &mut Parts, body: B) -> impl Future<Output = Taken<B>> + Send;
    }
}

type Taken<B> = Result<(B, Option<Bytes>), RejectionKind>;

/// The body is left to the handler.
impl<B: Send> Take<B> for DistributedLockLayer<true> {
    fn reads(_: &Parts, _: &B) -> bool {
        false
    }

    async fn take(_: &mut Parts, body: B) -> Taken<B> {
        Ok((body, None))
    }
}

/// The body is read, unless its client waits for an answer before it ends.
impl<B> Take<B> for DistributedLockLayer<false>
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
{
    fn reads(parts: &Parts, body: &B) -> bool {
        !is_dialogue(parts) && WholeBody::reads(parts, body)
    }

    async fn take(parts: &mut Parts, body: B) -> Taken<B> {
        match is_dialogue(parts) {
            true => Ok((body, None)),
            false => WholeBody::take(parts, body).await,
        }
    }
}

/// Reads each body.
pub(crate) enum WholeBody {}

impl<B> Take<B> for WholeBody
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
{
    fn reads(_: &Parts, body: &B) -> bool {
        !body.is_end_stream()
    }

    async fn take(parts: &mut Parts, body: B) -> Taken<B> {
        if !Self::reads(parts, &body) {
            return Ok((body, Some(Bytes::new())));
        }
        // Boxed, because most requests have no body, and it is large.
        let bytes = Box::pin(read(parts, body)).await?;
        Ok((bytes.clone().into(), Some(bytes)))
    }
}

/// Whether the client may send its body while it reads the answer: a gRPC call, or a WebSocket over HTTP/2.
fn is_dialogue(parts: &Parts) -> bool {
    let is_grpc =
        |content_type: &HeaderValue| content_type.as_bytes().starts_with(b"application/grpc");
    parts.method == Method::CONNECT || parts.headers.get(CONTENT_TYPE).is_some_and(is_grpc)
}

/// A request's body, and its bytes, once they are read.
pub(crate) struct Payload<B> {
    pub(crate) body: B,
    read: Option<Bytes>,
}

impl<B: Send> Payload<B> {
    /// Whether [`take`](Self::take) will read it.
    pub(crate) fn is_unread<L: Take<B>>(&self, parts: &Parts) -> bool {
        self.read.is_none() && L::reads(parts, &self.body)
    }

    /// The body as the layer `L` takes it, and its bytes if that layer reads it. The room for them is given back when this request
    /// has its lock, because from then on the body is the handler's.
    pub(crate) async fn take<L: Take<B>>(
        self,
        budget: &BodyBudget,
        parts: &mut Parts,
        key: &LockKey,
    ) -> Result<(B, Bytes, Room), Rejection> {
        let (body, read) = match self.read {
            None => L::take(parts, self.body).await.map_err(Rejection::new)?,
            read => (self.body, read),
        };
        let bytes = read.unwrap_or_default();
        match budget.room(key, bytes.len()) {
            Some(room) => Ok((body, bytes, room)),
            None => Err(Rejection::new(RejectionKind::BodyBudget)),
        }
    }
}

/// The keys, or why there are none. Reads the body if the keys are in it.
pub(crate) async fn extract<L: Take<B>, B: Send>(
    key: &AnyKey,
    parts: &mut Parts,
    body: B,
) -> Result<(Result<Keys, KeyError>, Payload<B>), Rejection> {
    let mut found = key.extract(parts).await;
    if !found.as_ref().is_err_and(KeyError::is_body_unread) {
        return Ok((found, Payload { body, read: None }));
    }
    let (body, read) = L::take(parts, body).await.map_err(Rejection::new)?;
    if let Some(bytes) = &read {
        parts.extensions.insert(RequestBody(bytes.clone()));
        found = key.extract(parts).await;
        // A layer further in may read another body.
        parts.extensions.remove::<RequestBody>();
    }
    Ok((found, Payload { body, read }))
}

//! The key of a request, and its body, which is read where the key is in it.

use std::collections::HashSet;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body::Body;

use super::DistributedLockLayer;
use super::body_budget::{BodyBudget, Room};
use super::body_reader::read;
use super::rejection::{Rejection, RejectionKind};
use crate::client::LockClient;
use crate::error::{BoxError, LockError};
use crate::key::{AnyKey, KeyError, Keys, RequestBody, route_of, template};
use crate::lock::LockKey;
use crate::sync::Mutex;
use crate::telemetry::Route;
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
    use super::{Bytes, Content, Parts, Rejection};

    /// How a layer takes a body.
    pub trait Take<B> {
        /// What is known of a body before anything is read.
        fn content(parts: &Parts, body: &B) -> Content;

        /// Reads a body that is [`Content::Unread`]. Returns one for the handler, and its bytes.
        fn read(
            parts: &mut Parts,
            body: B,
        ) -> impl Future<Output = Result<(B, Bytes), Rejection>> + Send;
    }
}

/// What a layer knows of a body.
#[derive(Debug)]
pub enum Content {
    /// The layer leaves it to the handler.
    Left,
    /// It is read before the lock is requested.
    Unread,
    Read(Bytes),
}

/// The body is left to the handler.
impl<B: Send> Take<B> for DistributedLockLayer<true> {
    fn content(_: &Parts, _: &B) -> Content {
        Content::Left
    }

    async fn read(_: &mut Parts, body: B) -> Result<(B, Bytes), Rejection> {
        Ok((body, Bytes::new()))
    }
}

/// Each body is read, except the messages of a gRPC call: its client may wait for an answer before it sends more.
impl<B> Take<B> for DistributedLockLayer<false>
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
{
    fn content(parts: &Parts, body: &B) -> Content {
        match is_grpc(parts) {
            true if is_service(template(parts)) => Content::Left,
            is_grpc => {
                let content = WholeBody::content(parts, body);
                if is_grpc && matches!(content, Content::Unread) {
                    warn_of_messages(route_of(parts));
                }
                content
            }
        }
    }

    async fn read(parts: &mut Parts, body: B) -> Result<(B, Bytes), Rejection> {
        WholeBody::read(parts, body).await
    }
}

/// Whether a request says that it is a gRPC call. That does not decide alone what happens to its body: with this header, a stranger
/// could hold the lock of any route with a slow body.
fn is_grpc(parts: &Parts) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE);
    content_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a route is that of a tonic service in an axum router, nested or not: `…/<package>.<Service>/{*rest}`, where the package may
/// be absent and the name of the service begins with a capital letter.
fn is_service(route: Option<&str>) -> bool {
    let route = route.and_then(|route| route.strip_suffix("/{*rest}"));
    let service = route.and_then(|route| route.rsplit(['/', '.']).next());
    service.is_some_and(|service| service.starts_with(char::is_uppercase))
}

/// Warns once per route, because a client that waits for an answer before it sends more waits until its body has timed out.
fn warn_of_messages(route: Route) {
    static WARNED: LazyLock<Mutex<HashSet<Route>>> = LazyLock::new(Mutex::default);
    if WARNED.lock().insert(route) {
        let route = route.template();
        tracing::warn!(
            route,
            "the messages of a gRPC call are read before its lock is requested, because its route is not that of a tonic service: \
             call `stream_body`, or use `DistributedLockLayer::grpc`"
        );
    }
}

/// Reads each body.
pub(crate) enum WholeBody {}

impl<B> Take<B> for WholeBody
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
{
    fn content(_: &Parts, body: &B) -> Content {
        match body.is_end_stream() {
            true => Content::Read(Bytes::new()),
            false => Content::Unread,
        }
    }

    async fn read(parts: &mut Parts, body: B) -> Result<(B, Bytes), Rejection> {
        // Boxed, because most requests have no body, and it is large.
        let bytes = Box::pin(read(parts, body)).await?;
        Ok((bytes.clone().into(), bytes))
    }
}

/// A request's body, and what is known of it.
pub(crate) struct Payload<B> {
    pub(crate) body: B,
    content: Content,
}

impl<B: Send> Payload<B> {
    /// Whether [`take`](Self::take) will read it.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self.content, Content::Unread)
    }

    /// The body as the layer `L` takes it, and its bytes if that layer reads it. The room for them is given back when this request
    /// has its lock, because from then on the body is the handler's.
    pub(crate) async fn take<L: Take<B>>(
        self,
        budget: &BodyBudget,
        parts: &mut Parts,
        key: &LockKey,
    ) -> Result<(B, Bytes, Room), Rejection> {
        let (body, bytes) = match self.content {
            Content::Left => (self.body, Bytes::new()),
            Content::Read(bytes) => (self.body, bytes),
            Content::Unread => L::read(parts, self.body).await?,
        };
        match budget.room(key, bytes.len()) {
            Some(room) => Ok((body, bytes, room)),
            None => Err(Rejection::new(RejectionKind::BodyBudget)),
        }
    }
}

/// The keys, or why there are none. Reads the body if the keys are in it, unless the client refuses every request.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` has its arguments twice"
)]
pub(crate) fn extract<L: Take<B>, B: Send>(
    key: &AnyKey,
    client: &LockClient,
    parts: &mut Parts,
    mut body: B,
) -> impl Future<Output = Result<(Result<Keys, KeyError>, Payload<B>), Rejection>> + Send {
    async move {
        let mut content = L::content(parts, &body);
        let mut found = key.extract(parts).await;
        if found.as_ref().is_err_and(KeyError::is_body_unread) {
            if matches!(content, Content::Unread) {
                if client.is_shut_down() {
                    return Err(LockError::Shutdown.into());
                }
                let (read, bytes) = L::read(parts, body).await?;
                (body, content) = (read, Content::Read(bytes));
            }
            if let Content::Read(bytes) = &content {
                parts.extensions.insert(RequestBody(bytes.clone()));
                found = key.extract(parts).await;
                // A layer further in may read another body.
                parts.extensions.remove::<RequestBody>();
            }
        }
        Ok((found, Payload { body, content }))
    }
}

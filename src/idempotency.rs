//! A layer that runs each request once, and answers repeats with the first response.
//!
//! A client that got no answer in time sends its request again, with the same key, and so does the sender of a webhook. A lock makes
//! such repeats wait for each other, but they still run. Behind this layer the work runs once, and each repeat gets the response of
//! the first request.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::Router;
//! use axum::routing::post;
//! use tower_distributed_lock::idempotency::key;
//! use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
//! # async fn pay() {}
//! # async fn pushed() {}
//!
//! /// Set by the authentication, which is outside of the layer.
//! #[derive(Clone)]
//! struct User(String);
//! # impl AsRef<str> for User { fn as_ref(&self) -> &str { &self.0 } }
//!
//! let locks = LockClient::new(MemoryStore::new());
//! let payments = IdempotencyLayer::payments(locks.clone()).tenant_from::<User>();
//! let webhooks = IdempotencyLayer::webhook(locks, key::github()); // inside of the check of the signature
//! let app: Router = Router::new()
//!     .route("/payments", post(pay).route_layer(payments))
//!     .route("/webhooks/github", post(pushed).route_layer(webhooks));
//! # }
//! ```
//!
//! # What a request goes through
//!
//! 1. Requests that do not write (GET, HEAD, QUERY, OPTIONS, TRACE, CONNECT) pass. Requests without a
//!    [`key`](IdempotencyLayer::key) pass too, unless it is [`required`](IdempotencyLayer::required). The layer does not read their
//!    bodies.
//! 2. The layer reads the body, up to axum's `DefaultBodyLimit` (2 MiB if it is not set, or without axum), and never more than 64 MiB.
//!    Method, host (without its port), path, query, content type, content encoding and body make the
//!    [`fingerprint`](IdempotencyLayer::fingerprint) of the request. The boundary of a multipart form is left out, because a client's
//!    library draws a new one for each attempt.
//! 3. The layer reads the record of the key. If there is one, it is the answer, with `Idempotent-Replayed: true`. Records do not
//!    change, so a replay needs no lock.
//! 4. Otherwise the layer takes the lock of the key, and reads the record again.
//! 5. If there is still no record, the inner service runs, to its end even if the client hangs up. The handler can extract the name of
//!    the record ([`IdempotencyKey`]) and the lock ([`LockHandle`](crate::LockHandle)).
//! 6. The layer records the response and releases the lock **in one step**, which fails if the lock was lost in the meantime. It
//!    sends the response when the store has confirmed that step.
//!
//! # What is promised
//!
//! During the [`retention`](IdempotencyLayer::retention), at most one execution per key is answered with a response that is
//! [recorded](self#what-is-recorded). Responses that are not recorded have no such promise. The handler may begin twice: a process
//! that dies in the middle leaves no record, so the repeat runs once the lease has expired.
//!
//! The promise costs one round trip to the store after the handler. If the store does not confirm the record within a second, the layer
//! looks for a record once more: its own, or the record of a request that ran in its place. Without one, the client gets a 500 with
//! `"outcome": "unknown"`, because the record may never be stored, and a repeat may also run and be answered.
//!
//! | cause | status |
//! |---|---|
//! | a request with this key is still running elsewhere, and the wait is over | 409 `request-in-progress`, with `Retry-After` |
//! | the key was used for another request, by the fingerprint | 422 `key-reused` |
//! | the key is required and absent, or it is malformed | 400 `key-missing`, `key-invalid` |
//! | the request's body is too long, or too slow | 413 `body-too-large`, 400 `body-timeout` |
//! | the lock was lost, or the store did not confirm the record | 500 `lock-lost`, `"outcome": "unknown"` |
//! | the request has no tenant, although the program sets a [`tenant`](IdempotencyLayer::tenant) | 500 `lock-misconfigured` |
//! | another program wrote the record | 500 `record-unreadable` |
//! | the store does not answer, the lock is lost before the handler begins, too many requests wait, or their bodies have no room | 503, with `Retry-After` |
//!
//! # What is recorded
//!
//! What a repeat cannot change: 2xx, 3xx, 402 and 410. Other refusals are not recorded, because the same request may succeed later:
//! the client refreshes its token (401), gets the right (403), corrects its `If-Match` (412), or the resource appears (404).
//! [`record_if`](IdempotencyLayer::record_if) decides otherwise for all responses, and [`Recording`] in the extensions of a response
//! for this one. The layer never records answers of this crate's layers further in, or an upgrade (101), whose connection no record
//! can replay. A panic, a lost lock, and a handler that is dropped record nothing.
//!
//! The layer sends these responses unrecorded, so that a repeat runs again: a response longer than
//! [`response_limit`](IdempotencyLayer::response_limit), a response of unknown length that does not end within 100 ms
//! ([`Recording::Always`] waits for it), and a response with trailers. The log has
//! a warning, once a minute. A body that ends before its `Content-Length` is not recorded either, and its client sees an error
//! instead of a response that looks whole.
//!
//! A record leaves out the headers that belong to one answer: hop-by-hop headers, `Date`, `Age`, `Via`, `Server-Timing`, `Retry-After`,
//! rate limits, trace and request ids, and CORS headers, so CORS belongs outside of this layer. It leaves out `Set-Cookie` unless the
//! handler says [`Recording::WithCookies`]. Compression belongs outside too: the layer removes `Accept-Encoding` from the request,
//! because clients that accept other encodings may get the record.
//!
//! # What records cost
//!
//! A record is the response and about 100 bytes, and stays in the store for its retention. A client that chooses its keys can
//! store a record for each of its requests, each with up to [`response_limit`](IdempotencyLayer::response_limit) bytes and the
//! header lines: limit its rate, or choose smaller values. A [`MemoryStore`](crate::MemoryStore) drops the oldest records beyond
//! its limit. Records may have a server of their own: with a separate [`LockClient`](crate::LockClient) for this layer, a server
//! that is full of records refuses no other lock.
//!
//! # Where to put it
//!
//! **Inside authentication and signature checks**, because a record answers every request with its key, and the keys of webhooks
//! verify nothing. Outside of [`DistributedLockLayer`](crate::DistributedLockLayer), whose 423 is then not recorded.
//!
//! On an axum route, the layer that is added last is the outermost:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! # use axum::{Router, routing::post};
//! # use tower_distributed_lock::{DistributedLockLayer, IdempotencyLayer, LockClient, MemoryStore, key};
//! # async fn pay() {}
//! # let locks = LockClient::new(MemoryStore::new());
//! let lock = DistributedLockLayer::new(locks.clone()).key(key::param("order", "id"));
//! let once = IdempotencyLayer::new(locks).shared();
//! let app: Router =
//!     Router::new().route("/orders/{id}/payments", post(pay).route_layer(lock).route_layer(once));
//! # }
//! ```

mod admission;
mod claimed;
mod fingerprint;
mod idempotency_layer;
mod identity;
pub mod key;
mod local;
mod protocol;
mod record;
mod recording;
mod settings;

pub use claimed::IdempotencyKey;
pub use idempotency_layer::{Idempotency, IdempotencyLayer, UndecidedClients};
pub use recording::Recording;

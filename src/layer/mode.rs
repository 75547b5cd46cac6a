//! The lock mode of a request: [`by_method`] is the default, and [`ModePolicy`] decides otherwise.

use http::request::Parts;

use crate::lock::LockMode;

/// Decides in which mode a request's key is locked.
///
/// Implemented by [`LockMode`] (the same for every request, whatever its method), by [`by_method`], and by closures over
/// `&Parts` that return a [`LockMode`] or an `Option` of one, where `None` means: not locked. gRPC and GraphQL send reads
/// and writes as POST, so there a closure decides.
///
/// Requests for one resource must stay within one family of modes: exclusive and read-write locks do not exclude each
/// other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide on a lock mode",
    note = "use a `LockMode`, `mode::by_method()`, `mode::writes_only()`, or a closure `|parts: &Parts| …` returning `LockMode` or `Option<LockMode>`"
)]
pub trait ModePolicy: Send + Sync + 'static {
    /// The mode for this request; `None` to let it pass without a lock.
    fn mode(&self, parts: &Parts) -> Option<LockMode>;

    /// The modes that it may return, if they are known before the first request.
    fn modes(&self) -> Vec<LockMode> {
        Vec::new()
    }
}

/// GET, HEAD and QUERY read ([`LockMode::Read`]). OPTIONS, TRACE and CONNECT are not locked: what they ask for is no part of the
/// resource, and a CORS preflight must not wait for a request that writes. Every other method writes ([`LockMode::Write`]),
/// unknown ones too. The default.
///
/// A WebSocket reads, whatever the version of HTTP: over HTTP/2 it is an extended CONNECT (RFC 8441), which names a path.
pub fn by_method() -> impl ModePolicy {
    ByMethod { reads: true }
}

/// Locks as [`by_method`] does, but lets requests that read pass without a lock: they see what a write has done in part, and cost
/// no round trip.
///
/// ```
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
/// # let locks = LockClient::new(MemoryStore::new());
/// use tower_distributed_lock::layer::mode;
///
/// DistributedLockLayer::new(locks).mode(mode::writes_only())
/// # ;
/// ```
pub fn writes_only() -> impl ModePolicy {
    ByMethod { reads: false }
}

struct ByMethod {
    reads: bool,
}

impl ModePolicy for ByMethod {
    fn mode(&self, parts: &Parts) -> Option<LockMode> {
        let mode = match parts.method.as_str() {
            "GET" | "HEAD" | "QUERY" => LockMode::Read,
            // Only an extended CONNECT has a path.
            "CONNECT" if parts.uri.path().starts_with('/') => LockMode::Read,
            "OPTIONS" | "TRACE" | "CONNECT" => return None,
            _ => LockMode::Write,
        };
        (self.reads || mode == LockMode::Write).then_some(mode)
    }

    fn modes(&self) -> Vec<LockMode> {
        match self.reads {
            true => vec![LockMode::Read, LockMode::Write],
            false => vec![LockMode::Write],
        }
    }
}

impl ModePolicy for LockMode {
    fn mode(&self, _: &Parts) -> Option<LockMode> {
        Some(*self)
    }

    fn modes(&self) -> Vec<LockMode> {
        vec![*self]
    }
}

impl<F, M> ModePolicy for F
where
    F: Fn(&Parts) -> M + Send + Sync + 'static,
    M: Into<Option<LockMode>>,
{
    fn mode(&self, parts: &Parts) -> Option<LockMode> {
        self(parts).into()
    }
}

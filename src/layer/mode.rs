//! The lock mode of a request.

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
    note = "use a `LockMode`, `by_method()`, or a closure `|parts: &Parts| …` returning `LockMode` or `Option<LockMode>`"
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
pub fn by_method() -> ByMethod {
    ByMethod
}

/// See [`by_method`].
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ByMethod;

impl ModePolicy for ByMethod {
    fn mode(&self, parts: &Parts) -> Option<LockMode> {
        match parts.method.as_str() {
            "GET" | "HEAD" | "QUERY" => Some(LockMode::Read),
            "OPTIONS" | "TRACE" | "CONNECT" => None,
            _ => Some(LockMode::Write),
        }
    }

    fn modes(&self) -> Vec<LockMode> {
        vec![LockMode::Read, LockMode::Write]
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

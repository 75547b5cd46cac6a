//! Why a request was not served.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::hold_times::retry_after;
use crate::error::LockError;

mod kind;

pub use kind::RejectionKind;

/// Where the problem types are explained.
const PROBLEMS: &str = "https://docs.rs/tower-distributed-lock/latest/tower_distributed_lock/#";

/// Why a request was not served, or its response withheld.
///
/// It is in the extensions of every response that the layer makes itself, so that layers further out can count and log the
/// reason, even after [`rejection`](super::DistributedLockLayer::rejection).
///
/// A layer further out counts the reasons:
///
/// ```
/// use http::Response;
/// use tower_distributed_lock::Rejection;
///
/// fn count<B>(response: &Response<B>) {
///     if let Some(rejection) = response.extensions().get::<Rejection>() {
///         println!("refused: {:?}", rejection.kind());
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Rejection {
    kind: RejectionKind,
    status: StatusCode,
    retry_after: Option<Duration>,
    detail: Option<Cow<'static, str>>,
    cause: Option<LockError>,
}

impl Rejection {
    pub(crate) fn new(kind: RejectionKind) -> Self {
        Self {
            kind,
            status: kind.status(),
            retry_after: kind.is_passing().then(|| retry_after(Duration::ZERO)),
            detail: None,
            cause: None,
        }
    }

    /// Why a lock was not acquired; `takes_permits`: what was asked for are permits.
    pub(crate) fn of(error: LockError, takes_permits: bool) -> Self {
        match takes_permits {
            true => Self::from(error).contended_as(RejectionKind::NoPermit),
            false => error.into(),
        }
    }

    /// Why the response of a handler is withheld: whatever the reason is, the client does not know the outcome.
    pub(crate) fn ended(error: LockError) -> Self {
        Self::new(RejectionKind::Lost).with_cause(error)
    }

    pub(crate) fn with_cause(mut self, error: LockError) -> Self {
        self.cause = Some(error);
        self
    }

    /// The same, of this kind if the lock was in use until the wait was over.
    pub(crate) fn contended_as(self, kind: RejectionKind) -> Self {
        match self.kind {
            RejectionKind::Contended => Self { kind, ..self }.with_status(kind.status()),
            _ => self,
        }
    }

    pub(crate) fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    pub(crate) fn with_detail(mut self, detail: Option<Cow<'static, str>>) -> Self {
        self.detail = detail;
        self
    }

    /// The same rejection with another status, for a program's own response: many HTTP clients repeat a 409 or a 503 by themselves,
    /// and not a 423.
    ///
    /// ```
    /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, RejectionKind};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// use http::StatusCode;
    ///
    /// DistributedLockLayer::new(locks).rejection(|rejection| match rejection.kind() {
    ///     RejectionKind::Contended => rejection.clone().with_status(StatusCode::CONFLICT).to_response(),
    ///     _ => rejection.to_response(),
    /// })
    /// # ;
    /// ```
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The cause, for layers further out.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The status that the layer answers with: that of the response whose extensions have this rejection, even after
    /// [`rejection`](super::DistributedLockLayer::rejection). For a gRPC call, whose response is a 200, it is the status that HTTP
    /// would have.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The time after which the client may try again, if another attempt may succeed: whole seconds, at least one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The error of the lock client, if the lock client was called.
    pub fn cause(&self) -> Option<&LockError> {
        self.cause.as_ref()
    }

    /// The layer's own response: `application/problem+json` (RFC 9457), with `no-store`, and without key or holder.
    ///
    /// It is a starting point for small changes.
    pub fn to_response(&self) -> Response<String> {
        let mut response = Response::new(self.problem());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        // Room for the length and the date too, which servers add.
        headers.reserve(6);
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, json);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(retry_after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after.as_secs()));
        }
        response
    }

    fn problem(&self) -> String {
        let problem = serde_json::to_string(&Problem {
            kind: format_args!("{PROBLEMS}{}", self.kind.as_str()),
            title: self.kind.title(),
            status: self.status.as_u16(),
            detail: self.detail.as_deref(),
            outcome: (self.kind == RejectionKind::Lost).then_some("unknown"),
        });
        problem.expect("its names are text")
    }
}

/// Details of a problem (RFC 9457).
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: fmt::Arguments<'a>,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
}

impl From<LockError> for Rejection {
    fn from(error: LockError) -> Self {
        Self::new(RejectionKind::of(&error)).with_cause(error)
    }
}

impl RejectionKind {
    /// Whether another attempt may succeed.
    fn is_passing(self) -> bool {
        let busy = matches!(self, Self::Contended | Self::NoPermit | Self::InProgress);
        busy || self.status() == StatusCode::SERVICE_UNAVAILABLE
    }

    pub(super) fn of(error: &LockError) -> Self {
        match error {
            LockError::Busy { .. } => Self::Contended,
            LockError::Overloaded => Self::Overloaded,
            LockError::Unavailable(_) | LockError::Shutdown => Self::Unavailable,
            LockError::Lost | LockError::Unconfirmed(_) => Self::Lost,
            LockError::Conflict(_)
            | LockError::Upgrade
            | LockError::Unsupported(_)
            | LockError::Invalid(_) => Self::Misconfigured,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        match (&self.detail, &self.cause) {
            (Some(detail), _) => write!(f, ": {detail}"),
            (None, Some(cause)) => write!(f, ": {cause}"),
            (None, None) => Ok(()),
        }
    }
}

impl Error for Rejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref()?.source()
    }
}

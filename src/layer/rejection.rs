//! Why a request was not served.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::body::LocalBody;
use super::hold_times::retry_after;
use crate::error::LockError;
use crate::key::{Cause, KeyError};

/// Where the problem types are explained.
const PROBLEMS: &str = "https://docs.rs/tower-distributed-lock/latest/tower_distributed_lock/#";

/// How much of a problem is the same for all.
const PROBLEM: usize = PROBLEMS.len() + 80;

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

/// The causes of a [`Rejection`], with status and problem type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// Another request held the lock until the wait was over: 423 `lock-contended`.
    Contended,
    /// All permits of the resource were in use until the wait was over: 429 `no-permit`.
    NoPermit,
    /// Too many requests wait for this lock already: 503 `lock-overloaded`.
    Overloaded,
    /// The store could not be reached or refused; nothing was held: 503 `lock-unavailable`.
    Unavailable,
    /// The lock was lost before its release was confirmed; the handler's work may have overlapped with other work, and its
    /// response was withheld: 500 `lock-lost`.
    Lost,
    /// The request has no key: 400 `key-missing`.
    KeyMissing,
    /// The key is malformed, too long or ambiguous: 400 `key-invalid`.
    KeyInvalid,
    /// The axum extractor of the key rejected the request; the answer is the extractor's own response.
    KeyRejected,
    /// The request's body is longer than [`buffer_body`](super::DistributedLockLayer::buffer_body) allows: 413
    /// `body-too-large`.
    BodyTooLarge,
    /// The request's body could not be read to its end: 400 `body-unreadable`.
    BodyUnreadable,
    /// The request's body took longer to arrive than
    /// [`body_time_limit`](super::DistributedLockLayer::body_time_limit) allows: 408 `body-timeout`.
    BodyTimeout,
    /// There is no room for the request's body within [`body_budget`](super::DistributedLockLayer::body_budget): 503
    /// `body-budget`.
    BodyBudget,
    /// A request with the same idempotency key was under way until the wait was over: 409 `request-in-progress`.
    InProgress,
    /// The idempotency key was used before, for a different request: 422 `key-reused`.
    KeyReused,
    /// The record of the idempotency key cannot be read: 500 `record-unreadable`. The handler was not called; the reason is
    /// logged, not sent.
    RecordUnreadable,
    /// The program requests the lock in a wrong way: 500 `lock-misconfigured`. The route lacks the parameter of the key, the
    /// key is locked in another family of modes or has other data, or a handler writes inside its own read. The reason is
    /// logged at error, not sent.
    Misconfigured,
}

impl RejectionKind {
    fn status(self) -> StatusCode {
        match self {
            Self::Contended => StatusCode::LOCKED,
            Self::NoPermit => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded | Self::Unavailable | Self::BodyBudget => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Lost | Self::RecordUnreadable | Self::Misconfigured => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::InProgress => StatusCode::CONFLICT,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyMissing | Self::KeyInvalid | Self::KeyRejected | Self::BodyUnreadable => {
                StatusCode::BAD_REQUEST
            }
        }
    }

    /// The name, for labels. The `type` of the response (RFC 9457) is a URI that ends in `#` and this name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Contended => "lock-contended",
            Self::NoPermit => "no-permit",
            Self::Overloaded => "lock-overloaded",
            Self::Unavailable => "lock-unavailable",
            Self::Lost => "lock-lost",
            Self::KeyMissing => "key-missing",
            Self::KeyInvalid => "key-invalid",
            Self::KeyRejected => "key-rejected",
            Self::BodyTooLarge => "body-too-large",
            Self::BodyUnreadable => "body-unreadable",
            Self::BodyTimeout => "body-timeout",
            Self::BodyBudget => "body-budget",
            Self::InProgress => "request-in-progress",
            Self::KeyReused => "key-reused",
            Self::RecordUnreadable => "record-unreadable",
            Self::Misconfigured => "lock-misconfigured",
        }
    }

    /// The gRPC status code for a service behind a layer, such as `tonic::Code::from_i32` takes it. With tonic:
    ///
    /// ```text
    /// layer.rejection(|rejection, _| {
    ///     let code = tonic::Code::from_i32(rejection.kind().grpc_code());
    ///     tonic::Status::new(code, rejection.kind().as_str()).into_http::<tonic::body::Body>()
    /// })
    /// ```
    pub fn grpc_code(self) -> i32 {
        match self {
            // INVALID_ARGUMENT
            Self::KeyMissing | Self::KeyInvalid | Self::KeyRejected | Self::BodyUnreadable => 3,
            // DEADLINE_EXCEEDED
            Self::BodyTimeout => 4,
            // RESOURCE_EXHAUSTED
            Self::NoPermit | Self::Overloaded | Self::BodyBudget | Self::BodyTooLarge => 8,
            // FAILED_PRECONDITION
            Self::KeyReused => 9,
            // ABORTED
            Self::Contended | Self::InProgress => 10,
            // INTERNAL
            Self::Misconfigured => 13,
            // UNAVAILABLE
            Self::Unavailable => 14,
            // DATA_LOSS
            Self::RecordUnreadable => 15,
            // UNKNOWN: what the handler did is unknown.
            Self::Lost => 2,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Contended => "The resource is locked by another request",
            Self::NoPermit => "As many requests as may use the resource at a time are using it",
            Self::Overloaded => "Too many requests wait for the resource",
            Self::Unavailable => "The resource cannot be locked at the moment",
            Self::Lost => "The lock was lost while the request was served",
            Self::KeyMissing => "The request has no key",
            Self::KeyInvalid | Self::KeyRejected => "The request's key is not a proper one",
            Self::BodyTooLarge => "The request body is too large",
            Self::BodyUnreadable => "The request body could not be read",
            Self::BodyTimeout => "The request body took too long to arrive",
            Self::BodyBudget => "Too many request bodies are being read",
            Self::InProgress => "A request with this idempotency key is under way",
            Self::KeyReused => "The idempotency key was used for another request",
            Self::RecordUnreadable => "The response to the first such request cannot be read",
            Self::Misconfigured => "The resource cannot be locked as the server asks for it",
        }
    }
}

impl Rejection {
    pub(crate) fn new(kind: RejectionKind) -> Self {
        Self {
            kind,
            status: kind.status(),
            retry_after: (kind == RejectionKind::BodyBudget).then(|| retry_after(Duration::ZERO)),
            detail: None,
            cause: None,
        }
    }

    /// Why a lock was not acquired; `takes_permits`: what was asked for are permits.
    pub(crate) fn of(error: LockError, takes_permits: bool) -> Self {
        let rejection = Self::from(error);
        match rejection.kind {
            RejectionKind::Contended if takes_permits => {
                rejection.with_kind(RejectionKind::NoPermit)
            }
            _ => rejection,
        }
    }

    pub(crate) fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn with_kind(mut self, kind: RejectionKind) -> Self {
        self.kind = kind;
        self.with_status(kind.status())
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The cause, for layers further out.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The status that the layer answers with.
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
            headers.insert(RETRY_AFTER, seconds(retry_after));
        }
        response
    }

    /// Written directly, without a tree of values: most refusals happen under the highest load.
    fn problem(&self) -> String {
        let (kind, title) = (self.kind.as_str(), self.kind.title());
        let status = self.status.as_u16();
        let detail = self.detail.as_ref().map_or(0, |detail| detail.len());
        let mut problem = String::with_capacity(PROBLEM + kind.len() + title.len() + detail);
        write!(
            problem,
            r#"{{"type":"{PROBLEMS}{kind}","title":"{title}","status":{status}"#
        )
        .expect("a string grows");
        if let Some(detail) = &self.detail {
            problem.push_str(r#","detail":"#);
            problem.push_str(&serde_json::Value::from(&**detail).to_string());
        }
        if self.kind == RejectionKind::Lost {
            problem.push_str(r#","outcome":"unknown""#);
        }
        problem.push('}');
        problem
    }
}

/// A number for a header.
fn seconds(time: Duration) -> HeaderValue {
    let mut digits = [0; 20];
    let mut rest = digits.as_mut_slice();
    write!(rest, "{}", time.as_secs()).expect("a number has 20 digits at most");
    let left = rest.len();
    let written = &digits[..digits.len() - left];
    HeaderValue::from_bytes(written).expect("digits are allowed")
}

impl From<LockError> for Rejection {
    fn from(error: LockError) -> Self {
        let (kind, retry) = match &error {
            LockError::Busy { retry_after } => (
                RejectionKind::Contended,
                Some(retry_after.unwrap_or_default()),
            ),
            LockError::Overloaded => (RejectionKind::Overloaded, Some(Duration::ZERO)),
            LockError::Unavailable(_) | LockError::Shutdown => {
                (RejectionKind::Unavailable, Some(Duration::ZERO))
            }
            LockError::Lost => (RejectionKind::Lost, None),
            LockError::Conflict(_)
            | LockError::Upgrade
            | LockError::Unsupported(_)
            | LockError::Invalid(_) => (RejectionKind::Misconfigured, None),
        };
        Self {
            retry_after: retry.map(retry_after),
            cause: Some(error),
            ..Self::new(kind)
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

/// The end of a request that is not served.
#[derive(Debug)]
pub(crate) enum Refusal {
    Rejection(Rejection),
    /// The response of a key extractor.
    Response(Box<Response<LocalBody>>),
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::Rejection(rejection)
    }
}

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        Self::Rejection(error.into())
    }
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        match error.into_cause() {
            Cause::Missing(reason) => {
                let rejection = Rejection::new(RejectionKind::KeyMissing);
                match reason {
                    Some(reason) => rejection.with_detail(reason).into(),
                    None => rejection.into(),
                }
            }
            Cause::Invalid(reason) => Rejection::new(RejectionKind::KeyInvalid)
                .with_detail(reason)
                .into(),
            #[cfg(feature = "axum")]
            Cause::NotOfTheRoute(reason) => LockError::invalid(reason).into(),
            Cause::BodyUnread => LockError::invalid(
                "the key is in the request's body, which was not read: call `buffer_body` on the layer",
            )
            .into(),
            Cause::Response(mut response) => {
                let rejection =
                    Rejection::new(RejectionKind::KeyRejected).with_status(response.status());
                response.extensions_mut().insert(rejection);
                Self::Response(Box::new(response.map(LocalBody::Other)))
            }
        }
    }
}

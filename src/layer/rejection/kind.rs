use http::StatusCode;

// Status codes of gRPC.
const UNKNOWN: i32 = 2;
const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const ABORTED: i32 = 10;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;
const DATA_LOSS: i32 = 15;

/// Declares each kind with its status, name, status code of gRPC, and title.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $status:ident, $name:literal, $grpc:ident, $title:literal;)+) => {
        /// The causes of a [`Rejection`](super::Rejection), with status and problem type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RejectionKind {
            $($(#[$doc])+ $kind,)+
        }

        impl RejectionKind {
            pub(super) fn status(self) -> StatusCode {
                match self {
                    $(Self::$kind => StatusCode::$status,)+
                }
            }

            /// The name, for labels. The `type` of the response (RFC 9457) is a URI that ends in `#` and this name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
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
                    $(Self::$kind => $grpc,)+
                }
            }

            pub(super) fn title(self) -> &'static str {
                match self {
                    $(Self::$kind => $title,)+
                }
            }
        }
    };
}

kinds! {
    /// Another request held the lock until the wait was over: 423 `lock-contended`.
    Contended = LOCKED, "lock-contended", ABORTED, "The resource is locked by another request";
    /// All permits of the resource were in use until the wait was over: 429 `no-permit`.
    NoPermit = TOO_MANY_REQUESTS, "no-permit", RESOURCE_EXHAUSTED, "As many requests as may use the resource at a time are using it";
    /// Too many requests wait for this lock already: 503 `lock-overloaded`.
    Overloaded = SERVICE_UNAVAILABLE, "lock-overloaded", RESOURCE_EXHAUSTED, "Too many requests wait for the resource";
    /// The store could not be reached or refused; nothing was held: 503 `lock-unavailable`.
    Unavailable = SERVICE_UNAVAILABLE, "lock-unavailable", UNAVAILABLE, "The resource cannot be locked at the moment";
    /// The lock was lost, or its release was not confirmed; the handler's work may have overlapped with other work, and its
    /// response was withheld: 500 `lock-lost`.
    Lost = INTERNAL_SERVER_ERROR, "lock-lost", UNKNOWN, "The lock was lost while the request was served";
    /// The request has no key: 400 `key-missing`.
    KeyMissing = BAD_REQUEST, "key-missing", INVALID_ARGUMENT, "The request has no key";
    /// The key is malformed, too long or ambiguous: 400 `key-invalid`.
    KeyInvalid = BAD_REQUEST, "key-invalid", INVALID_ARGUMENT, "The request's key is not a proper one";
    /// The axum extractor of the key rejected the request; the answer is the extractor's own response.
    KeyRejected = BAD_REQUEST, "key-rejected", INVALID_ARGUMENT, "The request's key is not a proper one";
    /// The request's body is longer than [`buffer_body`](crate::DistributedLockLayer::buffer_body) allows: 413
    /// `body-too-large`.
    BodyTooLarge = PAYLOAD_TOO_LARGE, "body-too-large", RESOURCE_EXHAUSTED, "The request body is too large";
    /// The request's body could not be read to its end: 400 `body-unreadable`.
    BodyUnreadable = BAD_REQUEST, "body-unreadable", INVALID_ARGUMENT, "The request body could not be read";
    /// The request's body took longer to arrive than
    /// [`body_time_limit`](crate::DistributedLockLayer::body_time_limit) allows: 408 `body-timeout`.
    BodyTimeout = REQUEST_TIMEOUT, "body-timeout", DEADLINE_EXCEEDED, "The request body took too long to arrive";
    /// There is no room for the request's body within [`body_budget`](crate::DistributedLockLayer::body_budget): 503
    /// `body-budget`.
    BodyBudget = SERVICE_UNAVAILABLE, "body-budget", RESOURCE_EXHAUSTED, "Too many request bodies are being read";
    /// A request with the same idempotency key was under way until the wait was over: 409 `request-in-progress`.
    InProgress = CONFLICT, "request-in-progress", ABORTED, "A request with this idempotency key is under way";
    /// The idempotency key was used before, for a different request: 422 `key-reused`.
    KeyReused = UNPROCESSABLE_ENTITY, "key-reused", FAILED_PRECONDITION, "The idempotency key was used for another request";
    /// The record of the idempotency key cannot be read: 500 `record-unreadable`. The handler was not called; the reason is
    /// logged, not sent.
    RecordUnreadable = INTERNAL_SERVER_ERROR, "record-unreadable", DATA_LOSS, "The response to the first such request cannot be read";
    /// The program requests the lock in a wrong way: 500 `lock-misconfigured`. The route lacks the parameter of the key, the
    /// key is locked in another family of modes or has other data, or a handler writes inside its own read. The reason is
    /// logged at error, not sent.
    Misconfigured = INTERNAL_SERVER_ERROR, "lock-misconfigured", INTERNAL, "The resource cannot be locked as the server asks for it";
}

use http::StatusCode;

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

            #[cfg(feature = "tonic")]
            pub(in crate::layer) fn code(self) -> tonic::Code {
                match self {
                    $(Self::$kind => tonic::Code::$grpc,)+
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
    Contended = LOCKED, "lock-contended", Aborted, "The resource is locked by another request";
    /// All permits of the resource were in use until the wait was over: 429 `no-permit`.
    NoPermit = TOO_MANY_REQUESTS, "no-permit", ResourceExhausted, "As many requests as may use the resource at a time are using it";
    /// Too many requests wait for this lock already: 503 `lock-overloaded`.
    Overloaded = SERVICE_UNAVAILABLE, "lock-overloaded", ResourceExhausted, "Too many requests wait for the resource";
    /// The store could not be reached or refused, or the lock had ended before the handler began, which did not run: 503
    /// `lock-unavailable`.
    Unavailable = SERVICE_UNAVAILABLE, "lock-unavailable", Unavailable, "The resource cannot be locked at the moment";
    /// The lock was lost, or its release was not confirmed; the handler's work may have overlapped with other work, and its
    /// response was withheld: 500 `lock-lost`.
    Lost = INTERNAL_SERVER_ERROR, "lock-lost", Unknown, "The lock was lost while the request was served";
    /// The request has no key: 400 `key-missing`.
    KeyMissing = BAD_REQUEST, "key-missing", InvalidArgument, "The request has no key";
    /// The key is malformed, too long or ambiguous: 400 `key-invalid`.
    KeyInvalid = BAD_REQUEST, "key-invalid", InvalidArgument, "The request's key is not a proper one";
    /// The axum extractor of the key rejected the request; the answer is the extractor's own response.
    KeyRejected = BAD_REQUEST, "key-rejected", InvalidArgument, "The request's key is not a proper one";
    /// The request's body is too long to be read before the lock: 413 `body-too-large`. See
    /// [`stream_body`](crate::DistributedLockLayer::stream_body).
    BodyTooLarge = PAYLOAD_TOO_LARGE, "body-too-large", ResourceExhausted, "The request body is too large";
    /// The request's body could not be read to its end: 400 `body-unreadable`.
    BodyUnreadable = BAD_REQUEST, "body-unreadable", InvalidArgument, "The request body could not be read";
    /// The request's body took longer than a minute to arrive: 400 `body-timeout`. Not 408, which clients repeat by themselves.
    BodyTimeout = BAD_REQUEST, "body-timeout", DeadlineExceeded, "The request body took too long to arrive";
    /// There is no room for the request's body beside those that wait for the same key: 503 `body-budget`. See
    /// [`stream_body`](crate::DistributedLockLayer::stream_body).
    BodyBudget = SERVICE_UNAVAILABLE, "body-budget", ResourceExhausted, "Too many request bodies wait for their locks";
    /// A request with the same idempotency key was under way until the wait was over: 409 `request-in-progress`.
    InProgress = CONFLICT, "request-in-progress", Aborted, "A request with this idempotency key is under way";
    /// The idempotency key was used before, for a different request: 422 `key-reused`.
    KeyReused = UNPROCESSABLE_ENTITY, "key-reused", FailedPrecondition, "The idempotency key was used for another request";
    /// The record of the idempotency key cannot be read: 500 `record-unreadable`. The handler was not called; the reason is
    /// logged, not sent.
    RecordUnreadable = INTERNAL_SERVER_ERROR, "record-unreadable", DataLoss, "The response to the first such request cannot be read";
    /// The program requests the lock in a wrong way: 500 `lock-misconfigured`. The route lacks the parameter of the key, the
    /// request has no tenant, the key is locked in another family of modes or has other data, or a handler writes inside its own read.
    /// The reason is logged at error, not sent.
    Misconfigured = INTERNAL_SERVER_ERROR, "lock-misconfigured", Internal, "The resource cannot be locked as the server asks for it";
}

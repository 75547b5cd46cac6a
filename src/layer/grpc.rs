//! Services of gRPC, with tonic.

use tonic::Status;
use tonic::body::Body;

use super::DistributedLockLayer;
use super::rejection::{Rejection, RejectionKind};
use super::settings::ReleaseOn;
use crate::client::LockClient;
use crate::error::LockError;
use crate::key;
use crate::lock::LockMode;

impl DistributedLockLayer<true> {
    /// Creates a layer for services of gRPC: the key is the path, which names service and method, each call takes it in
    /// [`LockMode::Reentrant`], messages are left to the service, and a call that is not served gets a gRPC status.
    ///
    /// **By default the calls of a method run one after the other, in all processes.** Choose a [`key`](Self::key) from the
    /// metadata if they need not.
    ///
    /// A call holds its lock until its last message was sent ([`ReleaseOn::BodyEnd`]): the trailers, which have the status of a
    /// call, are withheld until the release is confirmed. If it is not, or if the lock is lost, the stream is reset, and the client
    /// sees an error without the name of a [`RejectionKind`].
    ///
    /// ```
    /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, key};
    /// # fn serve(orders: tonic::service::Routes) {
    /// let locks = LockClient::new(MemoryStore::new());
    /// tonic::transport::Server::builder()
    ///     .layer(DistributedLockLayer::grpc(locks).key(key::header("x-order")))
    ///     .add_routes(orders);
    /// # }
    /// ```
    pub fn grpc(client: impl Into<LockClient>) -> Self {
        DistributedLockLayer::new(client)
            .stream_body()
            .key(key::path())
            .mode(LockMode::Reentrant)
            .release_on(ReleaseOn::BodyEnd)
            .rejection(|rejection| Status::from(rejection).into_http::<Body>())
    }
}

/// The message is the name of the [`RejectionKind`], which tells nothing of the key or its holder.
impl From<&Rejection> for Status {
    fn from(rejection: &Rejection) -> Self {
        let kind = rejection.kind();
        Self::new(kind.code(), kind.as_str())
    }
}

/// For a service that takes locks itself. The status is the one that [`DistributedLockLayer::grpc`] answers with.
impl From<LockError> for Status {
    fn from(error: LockError) -> Self {
        let kind = RejectionKind::of(&error);
        Self::new(kind.code(), kind.as_str())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::error::{StoreError, StoreErrorKind};

    #[test]
    fn each_refusal_has_its_status() {
        for (kind, code) in [
            (RejectionKind::Contended, Code::Aborted),
            (RejectionKind::NoPermit, Code::ResourceExhausted),
            (RejectionKind::Overloaded, Code::ResourceExhausted),
            (RejectionKind::Unavailable, Code::Unavailable),
            (RejectionKind::Lost, Code::Unknown),
            (RejectionKind::KeyMissing, Code::InvalidArgument),
            (RejectionKind::KeyInvalid, Code::InvalidArgument),
            (RejectionKind::KeyRejected, Code::InvalidArgument),
            (RejectionKind::BodyTooLarge, Code::ResourceExhausted),
            (RejectionKind::BodyUnreadable, Code::InvalidArgument),
            (RejectionKind::BodyTimeout, Code::DeadlineExceeded),
            (RejectionKind::BodyBudget, Code::ResourceExhausted),
            (RejectionKind::InProgress, Code::Aborted),
            (RejectionKind::KeyReused, Code::FailedPrecondition),
            (RejectionKind::RecordUnreadable, Code::DataLoss),
            (RejectionKind::Misconfigured, Code::Internal),
        ] {
            let status = Status::from(&Rejection::new(kind));
            assert_eq!((status.code(), status.message()), (code, kind.as_str()));
        }
    }

    #[test]
    fn each_error_of_a_lock_has_its_status() {
        let store = || StoreError::new(StoreErrorKind::Unanswered, "a test");
        for (error, code) in [
            (LockError::Busy { retry_after: None }, Code::Aborted),
            (LockError::Overloaded, Code::ResourceExhausted),
            (LockError::Unavailable(store()), Code::Unavailable),
            (LockError::Shutdown, Code::Unavailable),
            (LockError::Lost, Code::Unknown),
            (LockError::Unconfirmed(store()), Code::Unknown),
            (LockError::Conflict(store()), Code::Internal),
            (LockError::Upgrade, Code::Internal),
            (LockError::invalid("a test"), Code::Internal),
        ] {
            assert_eq!(Status::from(error).code(), code);
        }
    }
}

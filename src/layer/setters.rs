//! The setters that both layers have.

/// Declares the setters of a layer. Its method `change` changes its settings, which have the
/// [`ServeSettings`](super::ServeSettings) as their field `serve`, and panics if the result is wrong.
macro_rules! shared_setters {
    () => {
        #[track_caller]
        fn serve(self, change: impl FnOnce(&mut $crate::layer::ServeSettings)) -> Self {
            self.change(|settings| change(&mut settings.serve))
        }

        /// Allows requests without a [`tenant`](Self::tenant): their keys are the same for all of them.
        pub fn anonymous(self) -> Self {
            self.serve(|serve| serve.anonymous = true)
        }

        /// Sets the wait for the lock: a `Duration`, or a closure over `&Parts` that chooses it for each request. Zero: one attempt.
        ///
        /// The server does not always notice a disconnected client while its request waits (HTTP/1 with an unread body, or with any
        /// byte after the request), so the wait is always finite.
        #[track_caller]
        pub fn wait(self, wait: impl $crate::layer::WaitPolicy) -> Self {
            self.serve(|serve| serve.wait = std::sync::Arc::new(wait))
        }

        /// Sets how long the lock outlives a process that dies, and whether it is renewed (default: renewed, 30 s).
        ///
        /// # Panics
        ///
        /// If it is shorter than 10 ms.
        #[track_caller]
        pub fn lease(self, lease: $crate::lock::Lease) -> Self {
            self.serve(|serve| serve.lease = lease)
        }

        /// Sets your own response to requests that are not served. The layer puts the [`Rejection`](crate::Rejection) into its
        /// extensions, and removes the body of a response to HEAD. The text of a [`Rejection`](crate::Rejection) is for the program's log:
        /// it has the cause, such as advice for developers.
        ///
        /// ```
        /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
        /// use http::HeaderValue;
        /// use http::header::CONTENT_TYPE;
        ///
        /// # let locks = LockClient::new(MemoryStore::new());
        /// DistributedLockLayer::new(locks).rejection(|rejection| {
        ///     let mut response = rejection.to_response().map(|_| format!("sorry: {}", rejection.kind().as_str()));
        ///     response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        ///     response
        /// })
        /// # ;
        /// ```
        #[track_caller]
        pub fn rejection<F, B>(self, respond: F) -> Self
        where
            F: Fn(&$crate::layer::Rejection) -> http::Response<B> + Send + Sync + 'static,
            B: http_body::Body<Data = bytes::Bytes, Error: Into<$crate::error::BoxError>>
                + Send
                + 'static,
        {
            let responder = $crate::layer::Responder::new(respond);
            self.serve(|serve| serve.responder = responder)
        }
    };
}

/// The setter `tenant_from` of a layer that has the setter `tenant`.
macro_rules! tenant_from {
    ($Layer:ty) => {
        /// Takes the tenant from an extension of the type `T`, which the authentication has put into the request: see
        /// [`tenant`](Self::tenant).
        ///
        /// ```
        /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, key};
        /// #[derive(Clone)]
        /// struct Tenant(String);
        ///
        /// impl AsRef<str> for Tenant {
        ///     fn as_ref(&self) -> &str {
        ///         &self.0
        ///     }
        /// }
        ///
        /// # let locks = LockClient::new(MemoryStore::new());
        /// DistributedLockLayer::new(locks).key(key::path()).tenant_from::<Tenant>()
        /// # ;
        /// ```
        #[track_caller]
        pub fn tenant_from<T>(self) -> $Layer
        where
            T: AsRef<str> + Send + Sync + 'static,
        {
            self.tenant(|parts| Some(parts.extensions.get::<T>()?.as_ref().to_owned()))
        }
    };
}

pub(crate) use {shared_setters, tenant_from};

//! One call of the inner service.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    /// Makes a service ready, and calls it: it was not ready while the request waited.
    #[project = CallingProjected]
    pub(super) enum Calling<S, Q, F> {
        Waiting { inner: S, request: Option<Q> },
        Running { #[pin] response: F },
    }
}

impl<S: Service<Q>, Q> Calling<S, Q, S::Future> {
    pub(super) fn new(inner: S, request: Q) -> Self {
        Self::Waiting {
            inner,
            request: Some(request),
        }
    }
}

impl<S: Service<Q>, Q> Future for Calling<S, Q, S::Future> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match self.as_mut().project() {
            CallingProjected::Running { response } => return response.poll(cx),
            CallingProjected::Waiting { inner, request } => {
                ready!(inner.poll_ready(cx))?;
                inner.call(request.take().expect("a service is called once"))
            }
        };
        self.set(Self::Running { response });
        match self.project() {
            CallingProjected::Running { response } => response.poll(cx),
            CallingProjected::Waiting { .. } => unreachable!("it was called above"),
        }
    }
}

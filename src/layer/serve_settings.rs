//! The settings that both layers have.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use super::body_reader::BodyReader;
use super::hold_times::HoldTimes;
use super::overload_delay::OverloadDelay;
use super::predicate::OfRequest;
use super::respond::Responder;
use super::settings::OnCancel;
use crate::client::{LockClient, LockRequest};
use crate::limits;
use crate::lock::Lease;
use crate::telemetry::Route;

/// How a layer of this crate serves a request under its lock.
#[derive(Clone)]
pub(crate) struct ServeSettings {
    pub(crate) client: LockClient,
    /// Which requests are looked at.
    pub(crate) when: OfRequest<bool>,
    pub(crate) wait: Duration,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: usize,
    pub(crate) overload_delay: OverloadDelay,
    pub(crate) body_reader: BodyReader,
    pub(crate) on_cancel: OnCancel,
    pub(crate) responder: Responder,
    pub(crate) hold_times: Arc<HoldTimes>,
}

impl ServeSettings {
    pub(crate) fn new(client: LockClient, wait: Duration, max_waiters: usize) -> Self {
        Self {
            client,
            when: OfRequest::default(),
            wait,
            lease: Lease::default(),
            max_hold: Some(Duration::from_secs(300)),
            max_waiters,
            overload_delay: OverloadDelay::default(),
            body_reader: BodyReader::new(2 * 1024 * 1024),
            on_cancel: OnCancel::default(),
            responder: Responder::default(),
            hold_times: Arc::default(),
        }
    }

    /// Whether the layer looks at a request.
    pub(crate) fn apply_to(&self, parts: &Parts) -> bool {
        self.when.of(parts) != Some(false)
    }

    /// Checks the settings; the error names what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.body_reader.check()?;
        limits::check(self.lease, self.max_hold)
    }

    /// The same request with these settings.
    pub(crate) fn request(&self, request: LockRequest, route: Route) -> LockRequest {
        let request = request
            .wait(self.wait)
            .lease(self.lease)
            .max_waiters(self.max_waiters)
            .route(route);
        match self.max_hold {
            Some(max_hold) => request.max_hold(max_hold),
            None => request,
        }
    }
}

impl fmt::Debug for ServeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeSettings")
            .field("client", &self.client)
            .field("when", &self.when)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .field("max_hold", &self.max_hold)
            .field("max_waiters", &self.max_waiters)
            .field("overload_delay", &self.overload_delay)
            .field("body_reader", &self.body_reader)
            .field("on_cancel", &self.on_cancel)
            .finish_non_exhaustive()
    }
}

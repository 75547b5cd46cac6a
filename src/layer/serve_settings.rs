//! The settings that both layers have.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;

use super::body_reader::BodyReader;
use super::closure::OfRequest;
use super::hold_times::HoldTimes;
use super::overload_delay::OverloadDelay;
use super::rejection::{Rejection, RejectionKind};
use super::respond::Responder;
use super::settings::OnCancel;
use crate::client::{LockClient, LockRequest};
use crate::limits;
use crate::lock::Lease;
use crate::telemetry::Route;

/// How a layer of this crate serves a request under its lock.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    pub(crate) client: LockClient,
    /// Which requests are looked at; `None`: all.
    pub(crate) when: Option<OfRequest<bool>>,
    pub(crate) wait: Duration,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: usize,
    /// Whether those who wait for a key hold it one after the other. Otherwise the end of one hold serves all of them.
    pub(crate) waiters_take_turns: bool,
    /// The status of [`RejectionKind::Contended`].
    pub(crate) contended_status: StatusCode,
    /// The status of [`RejectionKind::NoPermit`].
    pub(crate) no_permit_status: StatusCode,
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
            when: None,
            wait,
            lease: Lease::default(),
            max_hold: Some(Duration::from_secs(300)),
            max_waiters,
            waiters_take_turns: true,
            contended_status: StatusCode::LOCKED,
            no_permit_status: StatusCode::TOO_MANY_REQUESTS,
            overload_delay: OverloadDelay::default(),
            body_reader: BodyReader::new(2 * 1024 * 1024),
            on_cancel: OnCancel::default(),
            responder: Responder::default(),
            hold_times: Arc::default(),
        }
    }

    /// Whether the layer looks at a request.
    pub(crate) fn apply_to(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|applies| applies(parts))
    }

    /// Checks the settings; the error names what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.body_reader.check()?;
        let is_error = |status: StatusCode| status.is_client_error() || status.is_server_error();
        if !is_error(self.contended_status) {
            return Err("`contended_status` needs a status from 400 to 599");
        }
        if !is_error(self.no_permit_status) {
            return Err("`no_permit_status` needs a status from 400 to 599");
        }
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

    /// The same rejection with its configured status, and with the time for the next attempt.
    pub(crate) fn timed(&self, rejection: Rejection) -> Rejection {
        let rejection = match rejection.kind() {
            RejectionKind::Contended => rejection.with_status(self.contended_status),
            RejectionKind::NoPermit => rejection.with_status(self.no_permit_status),
            _ => rejection,
        };
        let after = match rejection.kind() {
            RejectionKind::Contended | RejectionKind::NoPermit | RejectionKind::InProgress => {
                self.hold_times.retry_after(rejection.cause())
            }
            RejectionKind::Overloaded => {
                let turns = if self.waiters_take_turns {
                    self.max_waiters
                } else {
                    1
                };
                self.hold_times.after_all(turns)
            }
            _ => return rejection,
        };
        rejection.with_retry_after(after)
    }
}

//! Every setting of a layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;

use super::body_reader::BodyReader;
use super::mode::{ByMethod, ModePolicy, is_safe};
use super::rejection::{Refusal, RejectionKind};
use super::respond::Responder;
use super::settings::{Confirm, OnCancel, OnLost, OnMissing, OnUnavailable, ReleaseOn};
use crate::client::LockClient;
use crate::limits;
use crate::lock::{Lease, LockMode};

/// Every setting of a layer that is not a type parameter.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) mode: Arc<dyn ModePolicy>,
    /// What safe methods take instead, if that was said.
    pub(super) safe: Option<Option<LockMode>>,
    pub(super) wait: Duration,
    pub(super) lease: Lease,
    pub(super) max_hold: Option<Duration>,
    pub(super) max_waiters: usize,
    pub(super) max_keys: usize,
    pub(super) body_reader: BodyReader,
    pub(super) fenced: bool,
    pub(super) on_missing: OnMissing,
    pub(super) on_unavailable: OnUnavailable,
    pub(super) on_unavailable_reads: Option<OnUnavailable>,
    pub(super) on_lost: OnLost,
    pub(super) on_cancel: OnCancel,
    pub(super) confirm: Confirm,
    pub(super) release_on: ReleaseOn,
    pub(super) contended_status: StatusCode,
    pub(super) responder: Responder,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Arc::new(ByMethod),
            safe: None,
            wait: Duration::from_secs(10),
            lease: Lease::default(),
            max_hold: Some(Duration::from_secs(300)),
            max_waiters: 1024,
            max_keys: 32,
            body_reader: BodyReader::new(2 * 1024 * 1024),
            fenced: false,
            on_missing: OnMissing::default(),
            on_unavailable: OnUnavailable::default(),
            on_unavailable_reads: None,
            on_lost: OnLost::default(),
            on_cancel: OnCancel::default(),
            confirm: Confirm::default(),
            release_on: ReleaseOn::default(),
            contended_status: StatusCode::LOCKED,
            responder: Responder::default(),
        }
    }
}

impl Policy {
    /// The mode that a request is locked in; `None`: it is not locked.
    pub(super) fn mode(&self, parts: &Parts) -> Option<LockMode> {
        match self.safe {
            Some(mode) if is_safe(&parts.method) => mode,
            _ => self.mode.mode(parts),
        }
    }

    pub(super) fn on_unavailable(&self, reads_only: bool) -> OnUnavailable {
        match self.on_unavailable_reads {
            Some(reads) if reads_only => reads,
            _ => self.on_unavailable,
        }
    }

    /// Why no request could be served so, or not as it was meant.
    pub(super) fn check(&self, client: &LockClient) -> Result<(), &'static str> {
        self.check_modes(client)?;
        self.body_reader.check()?;
        limits::check(self.lease, self.max_hold)?;
        if !(self.contended_status.is_client_error() || self.contended_status.is_server_error()) {
            return Err("`contended_status` needs a status from 400 to 599");
        }
        if self.max_keys == 0 {
            return Err("`max_keys` is 0, so every request would be refused: choose at least 1");
        }
        if self.release_on == ReleaseOn::BodyEnd
            && self.max_hold.is_none()
            && matches!(self.lease, Lease::Renewed(_))
        {
            return Err(
                "`ReleaseOn::BodyEnd` without a longest hold lets a slow reader hold the lock for ever: \
                 set `max_hold`, or a fixed lease",
            );
        }
        if self.confirm == Confirm::Strict && self.on_unavailable == OnUnavailable::Proceed {
            return Err(
                "`Confirm::Strict` answers nothing unconfirmed and `OnUnavailable::Proceed` answers without a lock: \
                 choose one (`on_unavailable_reads` may still let reads proceed)",
            );
        }
        Ok(())
    }

    fn check_modes(&self, client: &LockClient) -> Result<(), &'static str> {
        let modes = self.known_modes();
        if modes
            .windows(2)
            .any(|pair| pair[0].family() != pair[1].family())
        {
            return Err(
                "`safe_methods` and `mode` take locks that never exclude each other: choose both from one family, \
                 `Read` and `Write` or `Reentrant` and `Fair`",
            );
        }
        if self.fenced && !modes.is_empty() && !modes.iter().any(|mode| mode.is_exclusive()) {
            return Err("`fenced` needs an exclusive mode: a read hold has no token");
        }
        modes
            .into_iter()
            .try_for_each(|mode| client.supports(mode, self.fenced && mode.is_exclusive()))
    }

    /// The modes that do not depend on a closure.
    fn known_modes(&self) -> Vec<LockMode> {
        let safe = self.safe.flatten();
        safe.into_iter().chain(self.mode.modes()).collect()
    }

    /// The same refusal with the status that was asked for.
    pub(super) fn refused(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Rejection(rejection) if rejection.kind() == RejectionKind::Contended => {
                rejection.with_status(self.contended_status).into()
            }
            refusal => refusal,
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .field("max_hold", &self.max_hold)
            .field("max_waiters", &self.max_waiters)
            .field("on_missing", &self.on_missing)
            .field("on_unavailable", &self.on_unavailable)
            .field("on_lost", &self.on_lost)
            .field("on_cancel", &self.on_cancel)
            .field("confirm", &self.confirm)
            .field("release_on", &self.release_on)
            .finish_non_exhaustive()
    }
}

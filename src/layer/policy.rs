//! The settings of the layer.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use super::closure::{Closure, OfRequest};
use super::mode::{ModePolicy, by_method};
use super::serve_settings::ServeSettings;
use super::settings::{Confirm, OnLost, OnMissing, OnUnavailable, ReleaseOn};
use crate::client::LockClient;
use crate::key::{KeyError, Keys};
use crate::lock::{Lease, LockKey, LockMode};
use crate::telemetry::Seldom;

/// Every setting of the layer that is not a type parameter.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) serve: ServeSettings,
    pub(super) mode: Closure<dyn ModePolicy>,
    /// The mode of GET, HEAD and QUERY, if it was set.
    pub(super) safe: Option<Option<LockMode>>,
    pub(super) max_keys: usize,
    pub(super) fenced: bool,
    pub(super) on_missing: OnMissing,
    pub(super) on_unavailable: OnUnavailable,
    pub(super) on_unavailable_reads: Option<OnUnavailable>,
    pub(super) on_lost: OnLost,
    /// `None`: the default.
    pub(super) confirm: Option<Confirm>,
    pub(super) confirm_reads: Option<Confirm>,
    pub(super) release_on: ReleaseOn,
    /// Whose things a request locks.
    pub(super) tenant: Option<OfRequest<Option<String>>>,
    /// Whether responses say how long the lock took.
    pub(super) server_timing: bool,
    /// Limits the log of requests that continue without their lock.
    pub(super) unlocked: Arc<Seldom>,
    /// Limits the log of responses that the store did not confirm.
    pub(super) by_lease: Arc<Seldom>,
}

impl Policy {
    pub(super) fn new(client: LockClient) -> Self {
        Self {
            serve: ServeSettings::new(client, Duration::from_secs(10), 1024),
            mode: Closure(Arc::new(by_method())),
            safe: None,
            max_keys: 32,
            fenced: false,
            on_missing: OnMissing::default(),
            on_unavailable: OnUnavailable::default(),
            on_unavailable_reads: None,
            on_lost: OnLost::default(),
            confirm: None,
            confirm_reads: None,
            release_on: ReleaseOn::default(),
            tenant: None,
            server_timing: false,
            unlocked: Arc::default(),
            by_lease: Arc::default(),
        }
    }

    /// The mode of a request; `None`: it is not locked.
    pub(super) fn mode(&self, parts: &Parts) -> Option<LockMode> {
        if !self.serve.apply_to(parts) {
            return None;
        }
        let Some(safe) = self.safe else {
            return self.mode.mode(parts);
        };
        match by_method().mode(parts) {
            Some(LockMode::Read) => safe,
            Some(_) => self.mode.mode(parts),
            None => None,
        }
    }

    /// The keys of a request; `None`: it is not locked.
    pub(super) fn keys(&self, found: Result<Keys, KeyError>) -> Result<Option<Keys>, KeyError> {
        let missing = match found {
            Ok(keys)
                if keys.len() > self.max_keys.min(self.serve.client.max_keys_per_request()) =>
            {
                return Err(KeyError::invalid("the request names too many keys"));
            }
            Ok(keys) if !keys.is_empty() => return Ok(Some(keys)),
            Ok(_) => KeyError::missing(),
            Err(error) if error.is_missing() => error,
            Err(error) => return Err(error),
        };
        match self.on_missing {
            OnMissing::Reject => Err(missing),
            OnMissing::Skip => Ok(None),
            OnMissing::Use(name) => Ok(Some(LockKey::new(name).into())),
        }
    }

    pub(super) fn on_unavailable(&self, reads_only: bool) -> OnUnavailable {
        match self.on_unavailable_reads {
            Some(reads) if reads_only => reads,
            _ => self.on_unavailable,
        }
    }

    /// How a request is confirmed. A layer that continues without a lock while the store is down is not `Strict` by default.
    pub(super) fn confirm(&self, reads_only: bool) -> Confirm {
        match (self.confirm, self.confirm_reads) {
            (_, Some(confirm)) if reads_only => confirm,
            (Some(confirm), _) => confirm,
            (None, _) if reads_only || self.on_unavailable == OnUnavailable::Proceed => {
                Confirm::Store
            }
            (None, _) => Confirm::Strict,
        }
    }

    /// Checks the settings; the error names what is wrong.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        self.check_modes()?;
        self.serve.check()?;
        if self.max_keys == 0 {
            return Err("`max_keys` is 0, so every request would be refused: choose at least 1");
        }
        if self.release_on == ReleaseOn::BodyEnd
            && self.serve.max_hold.is_none()
            && matches!(self.serve.lease, Lease::Renewed(_))
        {
            return Err(
                "`ReleaseOn::BodyEnd` without a longest hold lets a slow reader hold the lock for ever: \
                 set `max_hold`, or a fixed lease",
            );
        }
        let contradict = |confirm, reads| {
            confirm == Some(Confirm::Strict) && self.on_unavailable(reads) == OnUnavailable::Proceed
        };
        if contradict(self.confirm, false) || contradict(self.confirm_reads, true) {
            return Err(
                "`Confirm::Strict` answers nothing unconfirmed and `OnUnavailable::Proceed` answers without a lock: \
                 choose one (`on_unavailable_reads` may still let reads proceed)",
            );
        }
        Ok(())
    }

    fn check_modes(&self) -> Result<(), &'static str> {
        // Those that do not depend on a closure.
        let safe = self.safe.flatten().into_iter();
        let modes: Vec<LockMode> = safe.chain(self.mode.modes()).collect();
        if modes
            .windows(2)
            .any(|pair| pair[0].family() != pair[1].family())
        {
            return Err(
                "`safe_methods` and `mode` take locks that never exclude each other: choose both from one family, \
                 `Read` and `Write` or `Reentrant` and `Fair`; permits need `mode` alone",
            );
        }
        if self.fenced && !modes.is_empty() && !modes.iter().any(|mode| mode.is_exclusive()) {
            return Err("`fenced` needs an exclusive mode: a read hold or a permit has no token");
        }
        modes
            .into_iter()
            .try_for_each(|mode| {
                self.serve
                    .client
                    .supports(mode, self.fenced && mode.is_exclusive())
            })
            .map_err(|unsupported| unsupported.reason())
    }
}

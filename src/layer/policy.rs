//! The settings of the layer.

use std::sync::Arc;

use http::request::Parts;

use super::mode::{ModePolicy, by_method};
use super::serve_settings::{ServeSettings, WAIT};
use super::settings::{Confirm, OnLost, OnMissing, OnUnavailable, ReadPolicy, ReleaseOn};
use crate::client::LockClient;
use crate::key::{AnyKey, DefaultKey, KeyError, Keys};
use crate::lock::{LockKey, LockMode};
use crate::telemetry::Seldom;

/// Every setting of the layer that is not a type parameter.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) serve: ServeSettings,
    pub(super) key: AnyKey,
    /// `None`: by the method.
    pub(super) mode: Option<Arc<dyn ModePolicy>>,
    /// Whether the store has read-write locks.
    shares_reads: bool,
    pub(super) fenced: bool,
    pub(super) on_missing: OnMissing,
    pub(super) on_unavailable: OnUnavailable,
    pub(super) on_lost: OnLost,
    /// `None`: the default.
    pub(super) confirm: Option<Confirm>,
    /// `None`: reads have no policy of their own.
    pub(super) reads: Option<ReadPolicy>,
    pub(super) release_on: ReleaseOn,
    /// Limits the log of requests that continue without their lock.
    pub(super) unlocked: Arc<Seldom>,
}

impl Policy {
    pub(super) fn new(client: LockClient) -> Self {
        let mut modes = [LockMode::Read, LockMode::Write].into_iter();
        Self {
            shares_reads: modes.all(|mode| client.supports(mode, false).is_ok()),
            serve: ServeSettings::new(client, WAIT, 1024),
            key: AnyKey::Default(DefaultKey::default()),
            mode: None,
            fenced: false,
            on_missing: OnMissing::default(),
            on_unavailable: OnUnavailable::default(),
            on_lost: OnLost::default(),
            confirm: None,
            reads: None,
            release_on: ReleaseOn::default(),
            unlocked: Arc::default(),
        }
    }

    /// The keys of a request; `None`: it is not locked.
    pub(super) fn keys(&self, found: Result<Keys, KeyError>) -> Result<Option<Keys>, KeyError> {
        let keys = self.on_missing.keys(found)?;
        let most = self.serve.client.max_keys_per_request();
        match keys.as_ref().is_some_and(|keys| keys.len() > most) {
            true => Err(KeyError::invalid("the request names too many keys")),
            false => Ok(keys),
        }
    }

    pub(super) fn on_unavailable(&self, reads_only: bool) -> OnUnavailable {
        match self.reads {
            Some(reads) if reads_only => reads.on_unavailable,
            _ => self.on_unavailable,
        }
    }

    /// How a request is confirmed. A layer that continues without a lock while the store is down is not `Strict` by default.
    pub(super) fn confirm(&self, reads_only: bool) -> Confirm {
        match (self.reads, self.confirm) {
            (Some(reads), _) if reads_only => reads.confirm,
            (_, Some(confirm)) => confirm,
            _ if reads_only || self.on_unavailable == OnUnavailable::Proceed => Confirm::Store,
            _ => Confirm::Strict,
        }
    }

    /// The mode of a request, and whether it reads by its method on a store without read-write locks; `None`: it is not locked.
    pub(super) fn mode(&self, parts: &Parts) -> Option<(LockMode, bool)> {
        if let Some(mode) = &self.mode {
            return Some((mode.mode(parts)?, false));
        }
        let mode = by_method().mode(parts)?;
        Some(match self.shares_reads {
            true => (mode, false),
            false => (LockMode::Reentrant, mode == LockMode::Read),
        })
    }

    /// Checks the settings that the program has chosen; the error names what is wrong.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        self.serve.check()?;
        // Those that do not depend on a closure.
        let modes = match &self.mode {
            Some(mode) => mode.modes(),
            // Whether the store has tokens is known before the mode is.
            None if self.fenced => vec![LockMode::Reentrant],
            None => Vec::new(),
        };
        if self.fenced && !modes.is_empty() && !modes.iter().any(|mode| mode.is_exclusive()) {
            let reason = "`fenced` needs an exclusive mode: a read hold or a permit has no token";
            return Err(reason);
        }
        let client = &self.serve.client;
        modes.iter().try_for_each(|&mode| {
            let supported = client.supports(mode, self.fenced && mode.is_exclusive());
            supported.map_err(|unsupported| unsupported.reason())
        })
    }
}

impl OnMissing {
    /// The keys of a request, from what an extractor has found; `None`: it has none, and continues.
    pub(crate) fn keys(self, found: Result<Keys, KeyError>) -> Result<Option<Keys>, KeyError> {
        let missing = match found {
            Ok(keys) if !keys.is_empty() => return Ok(Some(keys)),
            Ok(_) => KeyError::missing(),
            Err(error) if error.is_missing() => error,
            Err(error) => return Err(error),
        };
        match self {
            Self::Reject => Err(missing),
            Self::Skip => Ok(None),
            Self::Use(name) => Ok(Some(LockKey::new(name).into())),
        }
    }
}

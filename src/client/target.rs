//! What a request asks for.

use std::sync::Arc;

use crate::error::LockError;
use crate::lock::{LockKey, LockMode, Namespace, ResourceKey};

/// A key that is asked for: a name, or one thing of a [`Resource`](crate::Resource). It may come with a mode of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub(super) key: LockKey,
    mode: Option<LockMode>,
    /// The mode that its resource is declared with; `None`: any.
    declared: Option<LockMode>,
}

impl Target {
    /// The same in a name space.
    pub(super) fn within(self, namespace: &Namespace) -> Self {
        Self {
            key: namespace.key(self.key),
            ..self
        }
    }

    /// The key.
    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// Locks it in `mode` unless it has a mode of its own, or permits, which have one mode.
    pub(crate) fn or_mode(&mut self, mode: LockMode) {
        let permits = self.declared.filter(|mode| mode.is_permit());
        self.mode = self.mode.or(permits).or(Some(mode));
    }

    /// Makes it the same thing of one tenant.
    pub(crate) fn tenant(&mut self, tenant: &str) {
        self.key = self.key.tenant(tenant);
    }

    /// The mode of its own, else `asked`, else what its resource is locked in.
    pub(crate) fn mode_in(&self, asked: Option<LockMode>) -> LockMode {
        let mode = self.mode.or(asked).or(self.declared);
        mode.unwrap_or(LockMode::Reentrant)
    }

    /// Whether its resource is locked in such a mode.
    pub(super) fn check(&self, mode: LockMode) -> Result<(), LockError> {
        match self.declared.and_then(|declared| declared.mismatch(mode)) {
            Some(mismatch) => Err(LockError::invalid(mismatch)),
            None => Ok(()),
        }
    }
}

/// Names that are used as they are.
macro_rules! from_names {
    ($($name:ty),*) => {$(
        impl From<$name> for Target {
            fn from(name: $name) -> Self {
                Self {
                    key: name.into(),
                    mode: None,
                    declared: None,
                }
            }
        }
    )*};
}

from_names!(LockKey, &LockKey, &str, String, &String, Arc<str>);

impl From<ResourceKey> for Target {
    fn from(resource: ResourceKey) -> Self {
        let (key, declared) = resource.into_parts();
        Self {
            key,
            mode: None,
            declared,
        }
    }
}

impl From<&ResourceKey> for Target {
    fn from(resource: &ResourceKey) -> Self {
        resource.clone().into()
    }
}

impl<T: Into<Target>> From<(T, LockMode)> for Target {
    fn from((target, mode): (T, LockMode)) -> Self {
        Self {
            mode: Some(mode),
            ..target.into()
        }
    }
}

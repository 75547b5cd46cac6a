use std::sync::Arc;

use super::{LockKey, LockMode, Namespace};

/// A key that is asked for: a name, or one thing of a [`Resource`](super::Resource), with its family of modes. It may come with a mode
/// of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResourceKey {
    key: LockKey,
    mode: Option<LockMode>,
    /// The mode that its resource is declared with; `None`: any.
    declared: Option<LockMode>,
}

impl ResourceKey {
    /// The key of one thing of a resource that is declared with this mode.
    pub(super) fn of(key: LockKey, declared: Option<LockMode>) -> Self {
        Self {
            key,
            mode: None,
            declared,
        }
    }

    /// The name.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The same thing of one tenant: see [`LockKey::tenant`].
    #[must_use]
    pub fn tenant(&self, tenant: impl AsRef<str>) -> Self {
        Self {
            key: self.key.tenant(tenant),
            ..*self
        }
    }

    /// The same in a name space.
    pub(crate) fn within(self, namespace: &Namespace) -> Self {
        Self {
            key: namespace.key(self.key),
            ..self
        }
    }

    /// Locks it in `mode` unless it has a mode of its own, or permits, which have one mode.
    pub(crate) fn or_mode(&mut self, mode: LockMode) {
        let permits = self.declared.filter(|mode| mode.is_permit());
        self.mode = self.mode.or(permits).or(Some(mode));
    }

    /// The mode of its own, else `asked`, else what its resource is locked in.
    pub(crate) fn mode_in(&self, asked: Option<LockMode>) -> LockMode {
        let mode = self.mode.or(asked).or(self.declared);
        mode.unwrap_or(LockMode::Reentrant)
    }

    /// Why its resource is not locked in such a mode.
    pub(crate) fn mismatch(&self, mode: LockMode) -> Option<&'static str> {
        self.declared?.mismatch(mode)
    }
}

/// Names that are used as they are.
macro_rules! from_names {
    ($($name:ty),*) => {$(
        impl From<$name> for ResourceKey {
            fn from(name: $name) -> Self {
                Self::of(name.into(), None)
            }
        }
    )*};
}

from_names!(LockKey, &LockKey, &str, String, &String, Arc<str>);

impl From<&Self> for ResourceKey {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl<T: Into<Self>> From<(T, LockMode)> for ResourceKey {
    fn from((key, mode): (T, LockMode)) -> Self {
        Self {
            mode: Some(mode),
            ..key.into()
        }
    }
}

impl From<ResourceKey> for LockKey {
    fn from(resource: ResourceKey) -> Self {
        resource.key
    }
}

impl From<&ResourceKey> for LockKey {
    fn from(resource: &ResourceKey) -> Self {
        resource.key.clone()
    }
}

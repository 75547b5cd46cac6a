use smallvec::{SmallVec, smallvec};

use super::KeyError;
use crate::error::LockError;
use crate::lock::{LockFamily, LockKey, LockMode, ResourceKey};

/// What a request names as locked: no key, one, or several that are locked together.
#[derive(Debug, Clone, Default)]
pub struct Keys(SmallVec<[Name; 1]>);

#[derive(Debug, Clone)]
struct Name {
    key: LockKey,
    /// `None`: the mode of the layer.
    mode: Option<LockMode>,
    /// The family that its resource is locked in; `None`: any.
    family: Option<LockFamily>,
}

impl Keys {
    fn one(key: LockKey, mode: Option<LockMode>, family: Option<LockFamily>) -> Self {
        Self(smallvec![Name { key, mode, family }])
    }

    /// Whether the request names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys the request names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The names alone.
    pub(crate) fn into_names(self) -> impl Iterator<Item = LockKey> {
        self.0.into_iter().map(|name| name.key)
    }

    /// What to lock and how, where `mode` is that of keys without one of their own.
    pub(crate) fn targets(
        self,
        mode: LockMode,
    ) -> Result<SmallVec<[(LockKey, LockMode); 1]>, LockError> {
        let targets = self.0.into_iter().map(|name| {
            let mode = name.mode.unwrap_or(mode);
            match name.family {
                Some(family) if family != mode.family() => {
                    Err(LockError::invalid(family.mismatch()))
                }
                _ => Ok((name.key, mode)),
            }
        });
        targets.collect()
    }
}

impl From<LockKey> for Keys {
    fn from(key: LockKey) -> Self {
        Self::one(key, None, None)
    }
}

/// What a closure may return to name keys.
///
/// A plain string does not do: say [`Resource::id`](crate::Resource::id) or [`LockKey::from_parts`] for what strangers may
/// have chosen, [`LockKey::new`] for what the program chose itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no keys",
    note = "return a `ResourceKey`, a `LockKey`, one of them with a `LockMode`, or an `Option`, `Vec`, array or `Result` of those"
)]
pub trait IntoKeys {
    /// The keys, or why there are none.
    fn into_keys(self) -> Result<Keys, KeyError>;
}

impl IntoKeys for Keys {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(self)
    }
}

impl IntoKeys for LockKey {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(self.into())
    }
}

impl IntoKeys for (LockKey, LockMode) {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(Keys::one(self.0, Some(self.1), None))
    }
}

impl IntoKeys for ResourceKey {
    fn into_keys(self) -> Result<Keys, KeyError> {
        let (key, family) = self.into_parts();
        Ok(Keys::one(key, None, family))
    }
}

impl IntoKeys for (ResourceKey, LockMode) {
    fn into_keys(self) -> Result<Keys, KeyError> {
        let (key, family) = self.0.into_parts();
        Ok(Keys::one(key, Some(self.1), family))
    }
}

impl<T: IntoKeys> IntoKeys for Option<T> {
    fn into_keys(self) -> Result<Keys, KeyError> {
        self.map_or_else(|| Ok(Keys::default()), T::into_keys)
    }
}

impl<T: IntoKeys> IntoKeys for Vec<T> {
    fn into_keys(self) -> Result<Keys, KeyError> {
        all(self)
    }
}

impl<T: IntoKeys, const N: usize> IntoKeys for [T; N] {
    fn into_keys(self) -> Result<Keys, KeyError> {
        all(self)
    }
}

impl<T: IntoKeys, E: Into<KeyError>> IntoKeys for Result<T, E> {
    fn into_keys(self) -> Result<Keys, KeyError> {
        self.map_err(E::into)?.into_keys()
    }
}

fn all<T: IntoKeys>(items: impl IntoIterator<Item = T>) -> Result<Keys, KeyError> {
    let mut keys = Keys::default();
    for item in items {
        keys.0.extend(item.into_keys()?.0);
    }
    Ok(keys)
}

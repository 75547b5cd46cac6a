use smallvec::{SmallVec, smallvec};

use super::KeyError;
use crate::error::LockError;
use crate::lock::{LockKey, LockMode, ResourceKey};

/// The keys of a request: none, one, or several that are locked together.
#[derive(Debug, Clone, Default)]
pub struct Keys(SmallVec<[NamedKey; 1]>);

#[derive(Debug, Clone)]
struct NamedKey {
    key: LockKey,
    /// `None`: the mode of the layer.
    mode: Option<LockMode>,
    /// The mode that its resource is declared with; `None`: any.
    declared: Option<LockMode>,
}

impl Keys {
    fn one(key: LockKey, mode: Option<LockMode>, declared: Option<LockMode>) -> Self {
        Self(smallvec![NamedKey {
            key,
            mode,
            declared,
        }])
    }

    /// Whether the request names no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys that the request names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The names alone.
    pub(crate) fn into_names(self) -> impl Iterator<Item = LockKey> {
        self.0.into_iter().map(|name| name.key)
    }

    /// The targets of the lock. `mode` is the mode of keys without one of their own. A resource of permits has one mode.
    pub(crate) fn targets(
        self,
        mode: LockMode,
    ) -> Result<SmallVec<[(LockKey, LockMode); 1]>, LockError> {
        let mut targets = SmallVec::with_capacity(self.len());
        for NamedKey {
            key,
            mode: own,
            declared,
        } in self.0
        {
            let only = declared.filter(|declared| matches!(declared, LockMode::Permit(_)));
            let mode = own.or(only).unwrap_or(mode);
            if let Some(mismatch) = declared.and_then(|declared| declared.mismatch(mode)) {
                return Err(LockError::invalid(mismatch));
            }
            targets.push((key, mode));
        }
        Ok(targets)
    }
}

impl From<LockKey> for Keys {
    fn from(key: LockKey) -> Self {
        Self::one(key, None, None)
    }
}

/// Types that a closure may return to name keys.
///
/// A plain string is not enough: use [`Resource::id`](crate::Resource::id) or [`LockKey::from_parts`] for input of
/// clients, and [`LockKey::new`] for a name that the program chose.
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
        let (key, declared) = self.into_parts();
        Ok(Keys::one(key, None, declared))
    }
}

impl IntoKeys for (ResourceKey, LockMode) {
    fn into_keys(self) -> Result<Keys, KeyError> {
        let (key, declared) = self.0.into_parts();
        Ok(Keys::one(key, Some(self.1), declared))
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

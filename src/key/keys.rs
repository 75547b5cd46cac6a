use smallvec::{SmallVec, smallvec};

use super::KeyError;
use crate::lock::{LockKey, LockMode, ResourceKey};

/// The keys of a request: none, one, or several that are locked together.
#[derive(Debug, Clone, Default)]
pub struct Keys(SmallVec<[ResourceKey; 1]>);

impl Keys {
    /// Whether the request names no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys that the request names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What is asked for.
    pub(crate) fn into_targets(self) -> SmallVec<[ResourceKey; 1]> {
        self.0
    }
}

impl From<LockKey> for Keys {
    fn from(key: LockKey) -> Self {
        Self(smallvec![key.into()])
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

/// What names one key.
macro_rules! one_key {
    ($($named:ty),+) => {
        $(impl IntoKeys for $named {
            fn into_keys(self) -> Result<Keys, KeyError> {
                Ok(Keys(smallvec![self.into()]))
            }
        })+
    };
}

one_key!(
    LockKey,
    (LockKey, LockMode),
    ResourceKey,
    (ResourceKey, LockMode)
);

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

use super::{KeyError, derived};
use crate::lock::{LockKey, LockMode};

/// What a request names as locked: no key, one, or several that are locked together.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<Name>);

#[derive(Debug, Clone)]
struct Name {
    key: LockKey,
    mode: Option<LockMode>,
    derived: bool,
}

impl Keys {
    /// A name that is derived from the request, and is to bear the mode's family.
    pub fn derived(key: LockKey) -> Self {
        Self(vec![Name {
            key,
            mode: None,
            derived: true,
        }])
    }

    /// Whether the request names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys the request names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What to lock and how, where `mode` is that of keys without one of their own.
    pub(crate) fn targets(self, mode: LockMode) -> Vec<(LockKey, LockMode)> {
        self.0
            .into_iter()
            .map(|name| {
                let mode = name.mode.unwrap_or(mode);
                match name.derived {
                    true => (derived(name.key, mode.family()), mode),
                    false => (name.key, mode),
                }
            })
            .collect()
    }
}

/// What a closure may return to name keys.
///
/// A plain string does not do: say [`LockKey::from_parts`] for what strangers may have chosen, [`LockKey::new`] for what
/// the program chose itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no keys",
    note = "return a `LockKey`, a `(LockKey, LockMode)`, or an `Option`, `Vec`, array or `Result` of those"
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
        Ok(Keys(vec![Name {
            key: self,
            mode: None,
            derived: false,
        }]))
    }
}

impl IntoKeys for (LockKey, LockMode) {
    fn into_keys(self) -> Result<Keys, KeyError> {
        Ok(Keys(vec![Name {
            key: self.0,
            mode: Some(self.1),
            derived: false,
        }]))
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

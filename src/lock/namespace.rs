//! What stands before all names of a client.

use std::sync::Arc;

use super::LockKey;

/// The longest name space (bytes), without the colon.
const LONGEST: usize = 64;

/// What stands before every name of a client, its colon included; empty if nothing does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Namespace(Arc<str>);

impl Namespace {
    /// Checks a name space.
    pub(crate) fn new(name: &str) -> Result<Self, &'static str> {
        if name.is_empty() || name.len() > LONGEST {
            return Err("a name space has 1 to 64 bytes");
        }
        if name.ends_with(':') {
            return Err("a name space ends without a colon: one is added");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/".contains(c);
        if !name.chars().all(is_plain) {
            return Err(
                "a name space consists of letters, digits and -._~:/, so that hash tags of names keep their meaning",
            );
        }
        Ok(Self(format!("{name}:").into()))
    }

    /// The key in this name space. A key of another one is moved.
    pub(crate) fn key(&self, key: LockKey) -> LockKey {
        key.within(&self.0)
    }

    /// The key of the store, as one of this name space.
    pub(crate) fn own(&self, key: LockKey) -> LockKey {
        match key.as_str().starts_with(&*self.0) {
            true => key.behind(self.0.len()),
            false => key,
        }
    }

    /// What names in the store begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.0
    }
}

//! Features that a store may lack.

use crate::lock::LockMode;

/// A feature that a store may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Grants holds in this mode; of permits, whatever their limit.
    Mode(LockMode),
    /// Issues fencing tokens.
    Fencing,
    /// Keeps [records](crate::store::Record).
    Records,
    /// Holds a key of this name.
    Key,
    /// Shows who holds a key, and ends holds by force.
    Inspection,
    /// Lists its keys.
    Listing,
    /// Keeps the entries of [processes](crate::store::ProcessInfo).
    Processes,
}

/// A refusal before anything is sent: the store lacks a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unsupported {
    feature: Feature,
    reason: &'static str,
}

impl Unsupported {
    /// `reason` is for a developer: the missing feature, and the alternative.
    pub fn new(feature: Feature, reason: &'static str) -> Self {
        Self { feature, reason }
    }

    /// The missing feature.
    pub fn feature(&self) -> Feature {
        self.feature
    }

    /// The missing feature, and the alternative.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl From<Feature> for Unsupported {
    fn from(feature: Feature) -> Self {
        let reason = match feature {
            Feature::Mode(LockMode::Reentrant) => {
                "the lock store does not offer `LockMode::Reentrant`"
            }
            Feature::Mode(LockMode::Fair) => "the lock store does not offer `LockMode::Fair`",
            Feature::Mode(LockMode::Read) => "the lock store does not offer `LockMode::Read`",
            Feature::Mode(LockMode::Write) => "the lock store does not offer `LockMode::Write`",
            Feature::Mode(LockMode::Permit(_)) => "the lock store does not offer permits",
            Feature::Fencing => "the lock store issues no fencing tokens",
            Feature::Records => {
                "this store keeps no records: use one that does, such as `RedisStore`"
            }
            Feature::Key => "the lock store cannot hold a key of this name",
            Feature::Inspection => "the lock store cannot be looked into",
            Feature::Listing => "the lock store does not list its keys",
            Feature::Processes => "the lock store keeps no entries of processes",
        };
        Self::new(feature, reason)
    }
}

//! Serialization of audits.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::{Audit, Deployment, Kept, Promise, Sentinels, Warning};
use crate::error::StoreError;

/// Fields under their names, facts as pairs, a member that did not answer as `{"error": …}`.
impl Serialize for Audit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut audit = to.serialize_struct("Audit", 7)?;
        audit.serialize_field("deployment", &self.deployment)?;
        audit.serialize_field("promises", &self.promises())?;
        audit.serialize_field("facts", &self.facts)?;
        audit.serialize_field("warnings", &self.warnings)?;
        let members: Vec<_> = self.members.iter().map(MemberJson::of).collect();
        audit.serialize_field("members", &members)?;
        audit.serialize_field("sentinels", &self.sentinels)?;
        audit.serialize_field("server_id", &self.server_id)?;
        audit.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum MemberJson<'a> {
    Seen(&'a Audit),
    Silent { error: String },
}

impl<'a> MemberJson<'a> {
    fn of(member: &'a Result<Audit, StoreError>) -> Self {
        match member {
            Ok(audit) => Self::Seen(audit),
            Err(error) => Self::Silent {
                error: error.to_string(),
            },
        }
    }
}

/// As its text.
impl Serialize for Deployment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// As its text, which names the remedy.
impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for Promise {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut promise = to.serialize_struct("Promise", 3)?;
        promise.serialize_field("id", self.id)?;
        promise.serialize_field("name", self.name)?;
        promise.serialize_field("kept", &self.kept)?;
        promise.end()
    }
}

/// As its text.
impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Fields under their names; `down_after` in milliseconds, as `down_after_ms`.
impl Serialize for Sentinels {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut sentinels = to.serialize_struct("Sentinels", 7)?;
        sentinels.serialize_field("listed", &self.listed)?;
        sentinels.serialize_field("answering", &self.answering)?;
        sentinels.serialize_field("known", &self.known)?;
        sentinels.serialize_field("quorum", &self.quorum)?;
        sentinels.serialize_field("reachable", &self.reachable)?;
        sentinels.serialize_field("can_fail_over", &self.can_fail_over)?;
        let down_after = u64::try_from(self.down_after.as_millis()).unwrap_or(u64::MAX);
        sentinels.serialize_field("down_after_ms", &down_after)?;
        sentinels.end()
    }
}

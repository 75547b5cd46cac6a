//! Serialization of audits.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::{Audit, Deployment, Kept, Warning};

/// Fields under their names, facts as pairs, a member that did not answer as `{"error": …}`.
impl Serialize for Audit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut audit = to.serialize_struct("Audit", 7)?;
        audit.serialize_field("deployment", &self.deployment)?;
        audit.serialize_field("promises", &self.promises())?;
        audit.serialize_field("facts", &self.facts)?;
        audit.serialize_field("warnings", &self.warnings)?;
        let members = self.members.iter().map(|member| match member {
            Ok(member) => json!(member),
            Err(error) => json!({ "error": error.to_string() }),
        });
        audit.serialize_field("members", &members.collect::<Vec<_>>())?;
        audit.serialize_field("sentinels", &self.sentinels)?;
        audit.serialize_field("server_id", &self.server_id)?;
        audit.end()
    }
}

/// Serializes a type as its text.
macro_rules! as_text {
    ($($kind:ty),+) => {
        $(impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        })+
    };
}

as_text!(Deployment, Warning, Kept);

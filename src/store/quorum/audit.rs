//! The audits of all stores, as one audit.

use std::collections::HashMap;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::QuorumStore;
use super::inspect::{LONGEST_INSPECTION, unreachable};
use crate::audit::{Audit, Deployment, Warning};
use crate::store::LockStore;

impl<S: LockStore> QuorumStore<S> {
    /// A store that does not answer becomes part of the report: the other stores carry the locks.
    pub(super) async fn look_at_all(&self) -> Audit {
        let mut audit = Audit::new(Deployment::Quorum {
            members: self.count(),
        });
        let audits = self.shared.stores.iter().map(|store| async move {
            let audited = timeout(LONGEST_INSPECTION, store.audit()).await;
            audited.unwrap_or_else(|_| Err(unreachable("an audit took too long")))
        });
        audit.members = join_all(audits).await;
        let mut seen = HashMap::new();
        for (n, member) in (1..).zip(&audit.members) {
            match member {
                Err(_) => audit.warnings.push(Warning::MemberSilent { member: n }),
                Ok(member) => {
                    let Some(id) = &member.server_id else {
                        continue;
                    };
                    if let Some(other) = seen.insert(id, n) {
                        let members = [other, n];
                        audit.warnings.push(Warning::SameServer { members });
                    }
                }
            }
        }
        audit
    }
}

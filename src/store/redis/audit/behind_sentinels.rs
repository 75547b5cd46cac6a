//! Audits a master that sentinels watch and can replace.

use std::sync::Arc;
use std::time::Duration;

use redis::Role;

use super::super::connection::SharedConnection;
use super::super::reply::read;
use super::super::sentinel::SentinelGroup;
use super::{ask, settings, unseen};
use crate::audit::{self, Audit, Deployment, Warning};
use crate::error::StoreError;
use crate::lock::Lease;

/// Fewer sentinels cannot replace a master when one of them fails together with it.
const FEWEST: usize = 3;

/// Adds to the audit what sentinels and replicas mean for the master behind `connection`.
///
/// If the user may not ask the master, the audit says so already; the sentinels are asked nevertheless.
pub(super) async fn add(
    audit: &mut Audit,
    connection: &Arc<SharedConnection>,
    sentinels: &SentinelGroup,
    acknowledging: bool,
) {
    // This also holds without replicas, or if the user may not ask the server.
    audit.deployment = Deployment::Failover;
    let (seen, silent) = sentinels.health().await;
    let min_replicas = MinReplicas::of(connection)
        .await
        .unwrap_or(MinReplicas::Unseen);
    audit.warnings.extend(silent);
    if let Some(seen) = &seen {
        audit.facts.push(("sentinels", seen.to_string()));
        audit.warnings.extend(weaknesses(seen));
    }
    audit.facts.push(("writes", min_replicas.to_string()));
    let without_replica = without_replica(connection).await;
    audit.warnings.extend(without_replica.ok().flatten());
    // Replicas that acknowledge do not follow a former master.
    if !acknowledging {
        audit.warnings.extend(min_replicas.weakness(seen.as_ref()));
    }
    audit.sentinels = seen;
}

fn weaknesses(seen: &audit::Sentinels) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let audit::Sentinels {
        listed,
        known,
        quorum,
        down_after,
        ..
    } = *seen;
    if known < FEWEST {
        warnings.push(Warning::FewSentinels { known });
    }
    if known > listed {
        warnings.push(Warning::UnlistedSentinels { listed, known });
    }
    match (seen.can_fail_over, seen.reachable) {
        (Some(false), Some(reachable)) => warnings.push(Warning::NoQuorum {
            reachable,
            known,
            quorum,
        }),
        (None, _) => {
            let what = "whether the sentinels can replace the master";
            warnings.push(unseen(what, "+sentinel|ckquorum"));
        }
        _ => {}
    }
    let lease = Lease::default().duration();
    if seen.lease_that_outlives_failover() >= lease {
        warnings.push(Warning::SlowFailover { down_after, lease });
    }
    warnings
}

/// What keeps a master that is cut off from granting locks.
enum MinReplicas {
    /// It must have this many replicas, each of which acknowledged within that time.
    AtLeast(u64, Duration),
    None,
    Unseen,
}

impl MinReplicas {
    async fn of(connection: &Arc<SharedConnection>) -> Result<Self, StoreError> {
        let [replicas, lag] = ["min-replicas-to-write", "min-replicas-max-lag"];
        let settings = settings(connection, [replicas, lag]).await?;
        let number = |name| settings.get(name)?.parse::<u64>().ok();
        Ok(match (number(replicas), number(lag)) {
            (None, _) | (_, None) => Self::Unseen,
            // Redis treats a lag of zero as no rule.
            (Some(0), _) | (_, Some(0)) => Self::None,
            (Some(replicas), Some(lag)) => Self::AtLeast(replicas, Duration::from_secs(lag)),
        })
    }

    fn weakness(&self, sentinels: Option<&audit::Sentinels>) -> Option<Warning> {
        match (self, sentinels) {
            (Self::Unseen, _) => Some(unseen(
                "whether a master that is cut off continues to grant locks",
                "+config|get",
            )),
            (Self::None, _) => Some(Warning::GrantsAlone),
            (Self::AtLeast(_, lag), Some(sentinels)) if *lag > sentinels.down_after => {
                Some(Warning::GrantsAloneFor {
                    lag: *lag,
                    down_after: sentinels.down_after,
                })
            }
            (Self::AtLeast(..), _) => None,
        }
    }
}

impl std::fmt::Display for MinReplicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(replicas, lag) => {
                write!(
                    f,
                    "need {replicas} or more replicas, {lag:?} behind at most"
                )
            }
            Self::None => f.write_str("need no replica"),
            Self::Unseen => f.write_str("unknown"),
        }
    }
}

/// The warning that no replica follows the master, or that the user may not ask.
async fn without_replica(
    connection: &Arc<SharedConnection>,
) -> Result<Option<Warning>, StoreError> {
    let Some(role) = ask(connection, "ROLE", &[]).await? else {
        return Ok(Some(unseen(
            "whether a replica follows the master",
            "+role",
        )));
    };
    Ok(match read(role)? {
        Role::Primary { replicas, .. } if replicas.is_empty() => Some(Warning::NoReplica),
        _ => None,
    })
}

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
    let (writes, grants_alone) = writes(connection, seen.as_ref()).await;
    audit.warnings.extend(silent);
    if let Some(seen) = &seen {
        audit.facts.push(("sentinels", seen.to_string()));
        audit.warnings.extend(weaknesses(seen));
    }
    audit.facts.push(("writes", writes));
    let without_replica = without_replica(connection).await;
    audit.warnings.extend(without_replica.ok().flatten());
    // Replicas that acknowledge do not follow a former master.
    if !acknowledging {
        audit.warnings.extend(grants_alone);
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

/// How many replicas the master needs for writes, which keeps it from granting locks when it is cut off; and what weakens that.
async fn writes(
    connection: &Arc<SharedConnection>,
    sentinels: Option<&audit::Sentinels>,
) -> (String, Option<Warning>) {
    let [replicas, lag] = ["min-replicas-to-write", "min-replicas-max-lag"];
    let settings = settings(connection, [replicas, lag]).await;
    let settings = settings.unwrap_or_default();
    let number = |name| settings.get(name)?.parse::<u64>().ok();
    let Some((replicas, lag)) = number(replicas).zip(number(lag)) else {
        let what = "whether a master that is cut off continues to grant locks";
        return ("unknown".to_owned(), Some(unseen(what, "+config|get")));
    };
    // Redis treats a lag of zero as no rule.
    if replicas == 0 || lag == 0 {
        return ("need no replica".to_owned(), Some(Warning::GrantsAlone));
    }
    let lag = Duration::from_secs(lag);
    let late = sentinels.filter(|seen| lag > seen.down_after);
    (
        format!("need {replicas} or more replicas, {lag:?} behind at most"),
        late.map(
            |&audit::Sentinels { down_after, .. }| Warning::GrantsAloneFor { lag, down_after },
        ),
    )
}

/// The warning that no replica follows the master, or that the user may not ask.
async fn without_replica(
    connection: &Arc<SharedConnection>,
) -> Result<Option<Warning>, StoreError> {
    Ok(
        match ask(connection, "ROLE", &[]).await?.map(read).transpose()? {
            None => Some(unseen("whether a replica follows the master", "+role")),
            Some(Role::Primary { replicas, .. }) if replicas.is_empty() => Some(Warning::NoReplica),
            Some(_) => None,
        },
    )
}

//! What weakens a deployment: one table of checks.

use super::{FSYNC, LAG, LEAST, SNAPSHOTS, Seen, unseen};
use crate::audit::Warning;
use crate::lock::Lease;

/// The oldest version of Redis that runs the scripts.
const OLDEST: [u64; 2] = [6, 2];

/// Fewer sentinels cannot replace a master when one of them fails together with it.
const FEWEST: usize = 3;

/// How many seconds the clocks of two servers may differ. A lease that is renewed has ten at least.
const CLOCKS: f64 = 0.5;

/// A kind of warning, and its text if it applies.
type Check = (&'static str, fn(&Seen) -> Option<String>);

/// What the server says of itself.
const OF_THE_SERVER: &[Check] = &[
    ("old_server", |seen| {
        let version = seen.info.server().1;
        let text = || format!("version {version} is not supported: use Redis 6.2 or newer");
        (!seen.info.is_at_least(OLDEST)).then(text)
    }),
    ("not_master", |seen| {
        let text = "the server is a replica and takes no locks: connect to its master";
        (!seen.info.is("role", "master")).then(|| text.into())
    }),
    ("replica_syncing", |seen| {
        let replicas = seen.info.replicas().into_iter();
        let syncing = replicas.filter(|(_, state)| state != "online");
        let syncing = listed(syncing.map(|(replica, state)| format!("{replica} ({state})")))?;
        Some(format!(
            "not all data has arrived at replica {syncing}: a failover to it loses locks"
        ))
    }),
    ("replica_clock", |seen| {
        let clocks = seen.clocks.iter();
        let wrong = clocks.filter(|(_, ahead)| ahead.abs() > CLOCKS);
        let wrong = listed(wrong.map(|(replica, ahead)| {
            let side = if *ahead < 0.0 { "behind" } else { "ahead of" };
            format!("{replica} is {:.1} s {side} its master", ahead.abs())
        }))?;
        Some(format!(
            "the clock of replica {wrong}: after a failover to it, leases end that much earlier or later; synchronize the clocks"
        ))
    }),
    ("not_persistent", |seen| {
        let text =
            "nothing is written to disk, so a restart frees what is held: set appendonly to yes";
        let never = seen.setting(SNAPSHOTS).is_none_or(str::is_empty);
        (!seen.is_logged() && never).then(|| text.into())
    }),
    ("snapshots_only", |seen| {
        let text = "only snapshots are written to disk, so a restart brings back an older state: set appendonly to yes";
        let some = seen.setting(SNAPSHOTS).is_some_and(|save| !save.is_empty());
        (!seen.is_logged() && some).then(|| text.into())
    }),
    ("disk_fails", |seen| {
        let mut last = ["aof_last_write_status", "rdb_last_bgsave_status"].into_iter();
        let failed = last.any(|last| seen.info.is(last, "err"));
        failed.then(|| "the server could not write to its disk: read its log".into())
    }),
    ("evicts", |seen| {
        let policy = seen.info.field("maxmemory_policy")?;
        (policy != "noeviction").then(|| {
            format!(
                "maxmemory-policy {policy} evicts locks and token counters: set it to noeviction"
            )
        })
    }),
    ("records_fill_memory", |seen| {
        let limit = seen.info.field("maxmemory").filter(|limit| *limit != "0")?;
        seen.recording.then(|| {
            format!(
                "records of requests share {limit} bytes with the locks, and no lock is granted when they are full: give the \
                 records a server of their own, or watch its memory"
            )
        })
    }),
];

/// What holds for a master that sentinels watch.
const BEHIND_SENTINELS: &[Check] = &[
    ("few_sentinels", |seen| {
        let known = seen.sentinels.as_ref()?.known;
        (known < FEWEST).then(|| {
            format!(
                "of {known} sentinels, none may be lost: run three or more, apart from each other"
            )
        })
    }),
    ("unlisted_sentinels", |seen| {
        let sentinels = seen.sentinels.as_ref()?;
        let (listed, known) = (sentinels.listed, sentinels.known);
        let text =
            || format!("the store asks {listed} of {known} sentinels: give it all addresses");
        (known > listed).then(text)
    }),
    ("no_quorum", |seen| {
        let sentinels = seen.sentinels.as_ref()?;
        let (reachable, known, quorum) = (sentinels.reachable?, sentinels.known, sentinels.quorum);
        (sentinels.can_fail_over == Some(false)).then(|| {
            format!(
                "no failover is possible: {reachable} of {known} sentinels can be reached, quorum {quorum}"
            )
        })
    }),
    ("slow_failover", |seen| {
        let sentinels = seen.sentinels.as_ref()?;
        let (down_after, lease) = (sentinels.down_after, Lease::default().duration());
        (sentinels.lease_that_outlives_failover() >= lease).then(|| {
            format!(
                "a master is replaced after {down_after:?}, in which leases of {lease:?} may run out: set \
                 down-after-milliseconds below {:?}",
                lease * 2 / 3
            )
        })
    }),
    ("no_replica", |seen| {
        let text = "no replica follows the master, so that none can take its place";
        (seen.followers == Some(0)).then(|| text.into())
    }),
    // Replicas that acknowledge do not follow a former master.
    ("grants_alone", |seen| {
        let text = "a master that is cut off, or that a planned failover replaces, continues to grant locks: have replicas \
                    acknowledge (`RedisStoreBuilder::replicas`), or set min-replicas-to-write to 1";
        // Redis treats a lag of zero as no rule.
        let none = seen.number(LEAST)? == 0 || seen.number(LAG)? == 0;
        (none && !seen.acknowledging).then(|| text.into())
    }),
    ("grants_alone_for", |seen| {
        let lag = std::time::Duration::from_secs(seen.number(LAG)?);
        let down_after = seen.sentinels.as_ref()?.down_after;
        let is_late = seen.number(LEAST)? > 0 && lag > down_after && !seen.acknowledging;
        is_late.then(|| {
            format!(
                "a master that is cut off grants locks for {lag:?} and is replaced after {down_after:?}: set \
                 min-replicas-max-lag lower than that"
            )
        })
    }),
];

/// What could not be looked at: what it is, the right that shows it, and whether it is missing.
type Blank = (&'static str, &'static str, fn(&Seen) -> bool);

const OF_THE_SERVER_UNSEEN: &[Blank] = &[
    (
        "how often the append-only file is synced",
        "+config|get",
        |seen| seen.is_logged() && seen.setting(FSYNC).is_none(),
    ),
    ("whether snapshots are made", "+config|get", |seen| {
        !seen.is_logged() && seen.setting(SNAPSHOTS).is_none()
    }),
];

const BEHIND_SENTINELS_UNSEEN: &[Blank] = &[
    (
        "whether the sentinels can replace the master",
        "+sentinel|ckquorum",
        |seen| {
            let sentinels = seen.sentinels.as_ref();
            sentinels.is_some_and(|sentinels| sentinels.can_fail_over.is_none())
        },
    ),
    ("whether a replica follows the master", "+role", |seen| {
        seen.followers.is_none()
    }),
    (
        "whether a master that is cut off continues to grant locks",
        "+config|get",
        |seen| seen.number(LEAST).is_none() && !seen.acknowledging,
    ),
];

/// The warnings. `is_seen`: the server has told about itself.
pub(super) fn all(seen: &Seen, is_seen: bool) -> Vec<Warning> {
    let server = is_seen.then_some(OF_THE_SERVER).unwrap_or_default();
    let sentinels = seen
        .is_behind_sentinels
        .then_some(BEHIND_SENTINELS)
        .unwrap_or_default();
    let checks = server.iter().chain(sentinels);
    checks
        .filter_map(|(kind, check)| Some(Warning::new(kind, check(seen)?)))
        .collect()
}

/// A warning for each thing that the user may not look at.
pub(super) fn unseen_of(seen: &Seen, is_seen: bool) -> Vec<Warning> {
    let server = is_seen.then_some(OF_THE_SERVER_UNSEEN).unwrap_or_default();
    let sentinels = seen
        .is_behind_sentinels
        .then_some(BEHIND_SENTINELS_UNSEEN)
        .unwrap_or_default();
    let blanks = server
        .iter()
        .chain(sentinels)
        .filter(|(.., is_missing)| is_missing(seen));
    blanks.map(|(what, rule, _)| unseen(what, rule)).collect()
}

/// The names with commas between them; `None` if there are none.
fn listed(names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Info;
    use super::*;

    fn seen(text: &str) -> Seen {
        let settings = [(FSYNC, "always"), (SNAPSHOTS, "")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Seen {
            info: Info::parse(&format!("role:master\r\naof_enabled:1\r\n{text}\r\n")),
            settings: HashMap::from(settings),
            clocks: Vec::new(),
            followers: None,
            is_behind_sentinels: false,
            sentinels: None,
            acknowledging: false,
            recording: false,
        }
    }

    #[test]
    fn every_check_has_a_kind_that_metrics_know() {
        for (kind, _) in OF_THE_SERVER.iter().chain(BEHIND_SENTINELS) {
            assert!(Warning::KINDS.contains(kind), "{kind}");
        }
        assert!(Warning::KINDS.is_sorted());
    }

    #[test]
    fn a_server_that_is_too_old_is_a_warning() {
        for (version, expected) in [("6.0.9", &["old_server"][..]), ("6.2.0", &[])] {
            let found = all(&seen(&format!("redis_version:{version}")), true);
            let kinds: Vec<_> = found.iter().map(|warning| warning.kind).collect();
            assert_eq!(kinds, expected, "{found:?}");
        }
    }

    #[test]
    fn records_beside_locks_on_a_server_with_a_limit_are_a_warning() {
        for (limit, recording, expected) in
            [("0", true, 0), ("64000", false, 0), ("64000", true, 1)]
        {
            let mut seen = seen(&format!("redis_version:7.0.0\r\nmaxmemory:{limit}"));
            seen.recording = recording;
            assert_eq!(all(&seen, true).len(), expected, "{limit} {recording}");
        }
    }
}

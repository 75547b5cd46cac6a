//! What weakens a deployment: one list of checks.

use std::time::Duration;

use super::{FSYNC, LAG, LEAST, SNAPSHOTS, Seen};
use crate::audit::Warning;
use crate::lock::Lease;

/// The oldest version of Redis that runs the scripts.
const OLDEST: [u64; 2] = [6, 2];

/// Fewer sentinels cannot replace a master when one of them fails together with it.
const FEWEST: usize = 3;

/// How many seconds the clocks of two servers may differ.
const CLOCKS: f64 = 0.5;

/// The warnings.
pub(super) fn all(seen: &Seen) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut check = |applies: bool, kind, text: String| {
        warnings.extend(applies.then(|| Warning::new(kind, text)));
    };
    if seen.is_seen() {
        of_the_server(seen, &mut check);
    }
    if seen.is_behind_sentinels {
        behind_sentinels(seen, &mut check);
    }
    warnings
}

/// What the server says of itself.
fn of_the_server(seen: &Seen, check: &mut impl FnMut(bool, &'static str, String)) {
    let info = &seen.info;
    let version = info.server().1;
    let text = format!("version {version} is not supported: use Redis 6.2 or newer");
    check(!info.is_at_least(OLDEST), "old_server", text);
    let text = "the server is a replica and takes no locks: connect to its master";
    check(!info.is("role", "master"), "not_master", text.into());

    let replicas = info
        .replicas()
        .into_iter()
        .filter(|(_, state)| state != "online");
    let replicas = listed(replicas.map(|(replica, state)| format!("{replica} ({state})")));
    let text =
        format!("not all data has arrived at replica {replicas}: a failover to it loses locks");
    check(!replicas.is_empty(), "replica_syncing", text);
    let clocks = seen.clocks.iter().filter(|(_, ahead)| ahead.abs() > CLOCKS);
    let clocks = listed(clocks.map(|(replica, ahead)| {
        let side = if *ahead < 0.0 { "behind" } else { "ahead of" };
        format!("{replica} is {:.1} s {side} its master", ahead.abs())
    }));
    let text = format!(
        "the clock of replica {clocks}: after a failover to it, leases end that much earlier or later; synchronize the clocks"
    );
    check(!clocks.is_empty(), "replica_clock", text);

    let (is_logged, snapshots) = (seen.is_logged(), seen.info.field(SNAPSHOTS));
    let never = snapshots.is_none_or(str::is_empty);
    let text = "nothing is written to disk, so a restart frees what is held: set appendonly to yes";
    check(!is_logged && never, "not_persistent", text.into());
    let text = "only snapshots are written to disk, so a restart brings back an older state: set appendonly to yes";
    check(!is_logged && !never, "snapshots_only", text.into());
    let unknown = is_logged && seen.info.field(FSYNC).is_none();
    let text = unseen("how often the append-only file is synced", "+config|get");
    check(unknown, "unseen", text);
    let text = unseen("whether snapshots are made", "+config|get");
    check(!is_logged && snapshots.is_none(), "unseen", text);
    let failed =
        ["aof_last_write_status", "rdb_last_bgsave_status"].map(|last| info.is(last, "err"));
    let text = "the server could not write to its disk: read its log";
    check(failed.contains(&true), "disk_fails", text.into());

    let policy = info.field("maxmemory_policy").unwrap_or("noeviction");
    let text =
        format!("maxmemory-policy {policy} evicts locks and token counters: set it to noeviction");
    check(policy != "noeviction", "evicts", text);
    let limit = info.field("maxmemory").unwrap_or("0");
    let text = format!(
        "records of requests share {limit} bytes with the locks, and no lock is granted when they are full: give the records a \
         server of their own, or watch its memory"
    );
    check(limit != "0" && seen.recording, "records_fill_memory", text);
}

/// What holds for a master that sentinels watch.
fn behind_sentinels(seen: &Seen, check: &mut impl FnMut(bool, &'static str, String)) {
    if let Some(sentinels) = &seen.sentinels {
        let (listed, known, quorum) = (sentinels.listed, sentinels.known, sentinels.quorum);
        let text = format!(
            "of {known} sentinels, none may be lost: run three or more, apart from each other"
        );
        check(known < FEWEST, "few_sentinels", text);
        let text = format!("the store asks {listed} of {known} sentinels: give it all addresses");
        check(known > listed, "unlisted_sentinels", text);
        let reachable = sentinels.reachable.unwrap_or(0);
        let text = format!(
            "no failover is possible: {reachable} of {known} sentinels can be reached, quorum {quorum}"
        );
        check(sentinels.can_fail_over == Some(false), "no_quorum", text);
        let text = unseen(
            "whether the sentinels can replace the master",
            "+sentinel|ckquorum",
        );
        check(sentinels.can_fail_over.is_none(), "unseen", text);
        let (down_after, lease) = (sentinels.down_after, Lease::default().duration());
        let text = format!(
            "a master is replaced after {down_after:?}, in which leases of {lease:?} may run out: set down-after-milliseconds \
             below {:?}",
            lease * 2 / 3
        );
        // Holds are renewed after a third of the lease, so two thirds of it are left at least.
        check(down_after * 3 / 2 >= lease, "slow_failover", text);
    }
    let text = "no replica follows the master, so that none can take its place";
    let is_alone = seen.is_seen() && seen.info.followers() == 0;
    check(is_alone, "no_replica", text.into());
    // Replicas that acknowledge do not follow a former master.
    if seen.acknowledging {
        return;
    }
    let (Some(least), Some(lag)) = (seen.info.number(LEAST), seen.info.number(LAG)) else {
        let text = unseen(
            "whether a master that is cut off continues to grant locks",
            "+config|get",
        );
        return check(true, "unseen", text);
    };
    // Redis treats a lag of zero as no rule.
    let text = "a master that is cut off, or that a planned failover replaces, continues to grant locks: have replicas \
                acknowledge (`RedisStoreBuilder::replicas`), or set min-replicas-to-write to 1";
    check(least == 0 || lag == 0, "grants_alone", text.into());
    let down_after = seen
        .sentinels
        .as_ref()
        .map_or(Duration::MAX, |seen| seen.down_after);
    let text = format!(
        "a master that is cut off grants locks for {lag}s and is replaced after {down_after:?}: set min-replicas-max-lag lower \
         than that"
    );
    check(
        least > 0 && Duration::from_secs(lag) > down_after,
        "grants_alone_for",
        text,
    );
}

fn unseen(what: &str, rule: &str) -> String {
    format!("{what} cannot be seen: grant the user {rule}")
}

/// The names with commas between them.
fn listed(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::{Address, Info};
    use super::*;

    fn seen(text: &str) -> Seen {
        let mut info = Info::parse(&format!("role:master\r\naof_enabled:1\r\n{text}\r\n"));
        let settings = [(FSYNC, "always"), (SNAPSHOTS, "")];
        info.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Seen {
            info,
            clocks: Vec::new(),
            is_behind_sentinels: false,
            sentinels: None,
            acknowledging: false,
            recording: false,
        }
    }

    #[test]
    fn every_warning_has_a_kind_that_metrics_know() {
        let mut seen = seen(
            "redis_version:6.0.0\r\nslave0:ip=a,port=1,state=wait\r\nmaxmemory_policy:x\r\nmaxmemory:1",
        );
        seen.clocks = vec![(Address::new("a", 1), 9.0)];
        (seen.recording, seen.is_behind_sentinels) = (true, true);
        let zero = [LEAST, LAG].map(|name| (name.to_owned(), "0".to_owned()));
        seen.info.extend(zero);
        let found = all(&seen);
        assert_eq!(found.len(), 7, "{found:?}");
        for warning in found {
            assert!(
                Warning::kinds().any(|kind| kind == warning.kind),
                "{warning}"
            );
        }
    }

    #[test]
    fn a_server_that_is_too_old_is_a_warning() {
        for (version, expected) in [("6.0.9", &["old_server"][..]), ("6.2.0", &[])] {
            let found = all(&seen(&format!("redis_version:{version}")));
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
            assert_eq!(all(&seen).len(), expected, "{limit} {recording}");
        }
    }
}

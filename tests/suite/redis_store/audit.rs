//! Audits of real servers.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tower_distributed_lock::audit::{Audit, Deployment};
use tower_distributed_lock::{LockClient, MemoryStore};
use tower_distributed_lock_quorum::QuorumStore;

use super::*;
use crate::support::{Proxy, eventually};

const LIMIT: Duration = Duration::from_secs(30);

fn kinds(audit: &Audit) -> Vec<&'static str> {
    audit.warnings.iter().map(|warning| warning.kind).collect()
}

async fn audit(server: &RedisServer) -> Audit {
    // A lazy connection, which does not refuse a replica.
    let store = RedisStore::builder(server.url()).connect_lazy().unwrap();
    LockClient::new(store).audit().await.unwrap()
}

#[tokio::test]
async fn what_is_written_to_disk_decides_what_is_promised() {
    for (settings, deployment, warnings) in [
        (
            &[("appendonly", "yes"), ("appendfsync", "always")][..],
            Deployment::Durable,
            &[][..],
        ),
        (
            &[("appendonly", "yes"), ("appendfsync", "everysec")],
            Deployment::Delayed,
            &[],
        ),
        (
            &[("save", "3600 1")],
            Deployment::Volatile,
            &["snapshots_only"],
        ),
        (&[], Deployment::Volatile, &["not_persistent"]),
    ] {
        let builder = settings
            .iter()
            .fold(RedisServer::builder(), |builder, (name, value)| {
                builder.config(name, value)
            });
        let server = builder.start().await;
        let audit = audit(&server).await;
        assert_eq!(audit.deployment, deployment, "{audit}");
        assert_eq!(kinds(&audit), warnings, "{audit}");
        for shown in ["master", "persistence", "S1 lease exclusion", "S6"] {
            assert!(audit.to_string().contains(shown), "{audit}");
        }
    }
}

#[tokio::test]
async fn both_protocols_give_the_same_audit() {
    let server = RedisServer::builder()
        .config("appendonly", "yes")
        .start()
        .await;
    for protocol in ["resp2", "resp3"] {
        let address = format!("{}/?protocol={protocol}", server.url());
        let store = RedisStore::connect(address).await.unwrap();
        let audit = LockClient::new(store).audit().await.unwrap();
        assert_eq!(audit.deployment, Deployment::Delayed, "{audit}");
        assert!(audit.to_string().contains("fsync everysec"), "{audit}");
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_a_warning() {
    let server = RedisServer::builder()
        .config("appendonly", "yes")
        .start()
        .await;
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru"] {
        configure(&server, "maxmemory-policy", policy).await;
        let audit = audit(&server).await;
        assert_eq!(kinds(&audit), ["evicts"], "{audit}");
        assert!(audit.warnings[0].text.contains(policy), "{audit}");
    }
    configure(&server, "maxmemory-policy", "noeviction").await;
    configure(&server, "maxmemory", "100mb").await;
    let audit = audit(&server).await;
    assert!(audit.warnings.is_empty(), "{audit}");
}

#[tokio::test]
async fn warnings_are_measured_by_their_kind_and_a_mended_one_is_none() {
    let server = RedisServer::start().await;
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    for (policy, expected) in [("allkeys-lru", 1.0), ("noeviction", 0.0)] {
        configure(&server, "maxmemory-policy", policy).await;
        let found = {
            let _local = metrics::set_default_local_recorder(&recorder);
            audit(&server).await
        };
        let mut measured = BTreeMap::new();
        for (key, _, _, value) in snapshots.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            if let (true, DebugValue::Gauge(count)) =
                (key.name() == "distributed_lock_audit_warnings", value)
            {
                let label = key.labels().next().expect("a label");
                measured.insert(label.value().to_owned(), count.0);
            }
        }
        assert_eq!(measured["evicts"], expected, "{policy}");
        assert_eq!(measured["not_persistent"], 1.0, "{measured:?}");
        let sum: f64 = measured.values().sum();
        assert_eq!(sum, found.warnings.len() as f64, "{measured:?}");
        assert!(
            found
                .warnings
                .iter()
                .all(|warning| measured.contains_key(warning.kind))
        );
    }
}

#[tokio::test]
async fn a_replica_that_has_not_all_data_yet_is_a_warning() {
    let master = RedisServer::builder()
        .config("appendonly", "yes")
        // The data are sent once the replica has asked, and not before.
        .config("repl-diskless-sync", "yes")
        .config("repl-diskless-sync-delay", "3600")
        .start()
        .await;
    let replica = RedisServer::start().await;
    let follow = ["REPLICAOF", "127.0.0.1", &master.port().to_string()].map(str::to_owned);
    let follow = redis::cmd(&follow[0]).arg(&follow[1..]).to_owned();
    follow
        .exec_async(&mut replica.connection().await)
        .await
        .unwrap();
    let behind = eventually("the replica has asked", LIMIT, async || {
        let audit = audit(&master).await;
        (!audit.warnings.is_empty()).then_some(audit)
    })
    .await;
    assert_eq!(behind.deployment, Deployment::Failover);
    assert_eq!(kinds(&behind), ["replica_syncing"], "{behind}");
    let address = format!("replica 127.0.0.1:{} (", replica.port());
    assert!(behind.warnings[0].text.contains(&address), "{behind}");

    configure(&master, "repl-diskless-sync-delay", "0").await;
    eventually("the replica is up to date", LIMIT, async || {
        let audit = audit(&master).await;
        audit.warnings.is_empty().then_some(())
    })
    .await;
    let audit = audit(&master).await;
    assert!(
        audit.to_string().contains("1, 1 of them up to date"),
        "{audit}"
    );
}

#[tokio::test]
async fn a_replica_is_no_place_for_locks() {
    let master = RedisServer::start().await;
    let replica = RedisServer::builder().config("appendonly", "yes");
    let leader = format!("127.0.0.1 {}", master.port());
    let replica = replica.config("replicaof", &leader).start().await;
    let audit = audit(&replica).await;
    assert_eq!(audit.deployment, Deployment::Failover);
    assert_eq!(kinds(&audit), ["not_master"], "{audit}");
}

#[tokio::test]
async fn what_a_user_may_not_ask_is_a_warning_and_no_error() {
    let rules = RedisStore::acl_rules(["k"]);
    for (rules, deployment, expected) in [
        (rules.to_string(), Deployment::Unknown, vec!["+info"]),
        (
            format!("{rules} +info"),
            Deployment::Volatile,
            vec!["+config|get"],
        ),
        (rules.audit().to_string(), Deployment::Volatile, vec![]),
    ] {
        let user = format!("locks on >secret {rules}");
        let server = RedisServer::builder().config("user", &user).start().await;
        let address = format!("redis://locks:secret@127.0.0.1:{}", server.port());
        let store = RedisStore::connect(address).await.unwrap();
        let audit = LockClient::new(store).audit().await.unwrap();
        assert_eq!(audit.deployment, deployment, "{audit}");
        let unseen = audit.warnings.iter().filter_map(|warning| {
            let (_, rule) = warning.text.rsplit_once(' ')?;
            (warning.kind == "unseen").then_some(rule)
        });
        assert_eq!(unseen.collect::<Vec<_>>(), expected, "{audit}");
    }
}

#[tokio::test]
async fn rights_that_locks_need_are_a_warning_before_and_after_connecting() {
    let user = "locks on >secret ~* &* +@all -pexpire";
    let server = RedisServer::builder().config("user", user).start().await;
    let address = format!("redis://locks:secret@127.0.0.1:{}", server.port());
    let lacking = |audit: &Audit, rule: &str| {
        let mut warnings = audit.warnings.iter();
        let lacking = warnings.find(|warning| warning.kind == "missing_rights");
        let text = &lacking.expect("it is found").text;
        assert!(text.ends_with(&format!("grant it {rule}")), "{audit}");
    };
    let store = RedisStore::builder(address).connect_lazy().unwrap();
    let locks = LockClient::new(store);
    lacking(&locks.audit().await.unwrap(), "+pexpire");

    let mut redis = server.connection().await;
    let set = redis::cmd("ACL")
        .arg(&["SETUSER", "locks", "+pexpire"])
        .to_owned();
    set.exec_async(&mut redis).await.unwrap();
    eventually("the user is accepted", LIMIT, async || {
        let audit = locks.audit().await.unwrap();
        (audit.deployment == Deployment::Volatile).then_some(())
    })
    .await;
    let set = redis::cmd("ACL")
        .arg(&["SETUSER", "locks", "-hset"])
        .to_owned();
    set.exec_async(&mut redis).await.unwrap();
    lacking(&locks.audit().await.unwrap(), "+hset");
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_a_warning() {
    let server = RedisServer::start().await;
    // The server cannot write to its directory any more.
    server.remove_directory();
    let mut redis = server.connection().await;
    let save = redis::cmd("BGSAVE").exec_async(&mut redis).await;
    save.unwrap();
    eventually("the snapshot has failed", LIMIT, async || {
        let audit = audit(&server).await;
        kinds(&audit).contains(&"disk_fails").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_down_cannot_be_audited() {
    let (mut server, store) = server_and_store().await;
    server.kill9();
    let locks = LockClient::new(store);
    assert!(locks.audit().await.is_err());
}

#[tokio::test]
async fn a_quorum_reports_silent_members_and_one_server_in_two_places() {
    let (one, two) = tokio::join!(RedisServer::start(), RedisServer::start());
    configure(&two, "maxmemory-policy", "allkeys-lru").await;
    let mut down = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&one).await;
    let stores = [one.url(), two.url(), down.url(), proxy.url(), two.url()]
        .map(|address| RedisStore::builder(address).connect_lazy().unwrap());
    down.kill9();
    let locks = LockClient::new(QuorumStore::new(stores).unwrap());
    let audit = locks.audit().await.unwrap();
    assert_eq!(audit.deployment, Deployment::Quorum { members: 5 });
    let expected = ["member_silent", "same_server", "same_server"];
    assert_eq!(kinds(&audit), expected, "{audit}");
    for (warning, members) in audit.warnings[1..].iter().zip(["1 and 4", "2 and 5"]) {
        assert!(warning.text.contains(members), "{audit}");
    }
    let text = audit.to_string();
    assert!(text.contains("store 2 warning"), "{text}");
    assert!(text.contains("cannot be reached"), "{text}");

    let memory = [(); 3].map(|()| MemoryStore::new());
    let locks = LockClient::new(QuorumStore::new(memory).unwrap());
    assert!(locks.audit().await.unwrap().warnings.is_empty());
}

//! Audits of sentinels, and of the master that they watch.

use tower_distributed_lock::audit::{Audit, Deployment, Warning};
use tower_distributed_lock::store::redis::RedisStoreBuilder;
use tower_distributed_lock::{LockClient, RedisStore};

use super::LIMIT;
use crate::redis_store::configure;
use crate::support::{RedisSentinels, eventually};

fn builder(sentinels: &RedisSentinels) -> RedisStoreBuilder {
    RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME)
}

async fn audit(builder: RedisStoreBuilder) -> Audit {
    let store = builder.connect().await.unwrap();
    LockClient::new(store).audit().await.unwrap()
}

/// The warnings, without those of every server without persistence.
fn warnings(audit: &Audit) -> Vec<Warning> {
    let all = audit.warnings.iter().cloned();
    all.filter(|warning| warning.kind != "not_persistent")
        .collect()
}

/// What is shown of the sentinels.
fn sentinels_in(audit: &Audit) -> Option<&str> {
    let mut facts = audit.facts.iter();
    let fact = facts.find(|(name, _)| *name == "sentinels");
    fact.map(|(_, text)| text.as_str())
}

#[tokio::test]
async fn healthy_sentinels_are_shown_without_a_warning() {
    let sentinels = RedisSentinels::start().await;
    for server in &sentinels.replicated.servers {
        configure(server, "min-replicas-to-write", "1").await;
        configure(server, "min-replicas-max-lag", "1").await;
    }
    // A sentinel needs a moment until it knows both others.
    let audit = eventually("nothing is to be said", LIMIT, async || {
        let audit = audit(builder(&sentinels)).await;
        match warnings(&audit).is_empty() {
            true => Ok(audit),
            false => Err(audit),
        }
    })
    .await;
    assert_eq!(audit.deployment, Deployment::Failover);
    let text = audit.to_string();
    let shown = "3 of 3 answer, 3 known, quorum 2 reachable, down after 1.5s";
    assert!(text.contains(shown), "{text}");
}

#[tokio::test]
async fn a_master_that_would_go_on_alone_is_a_warning_unless_replicas_acknowledge() {
    let sentinels = RedisSentinels::start().await;
    let master = sentinels.replicated.master();
    let alone = |audit: &Audit| {
        let warnings = warnings(audit).into_iter();
        let alone = warnings.filter(|warning| warning.kind.starts_with("grants_alone"));
        alone.map(|warning| warning.kind).collect::<Vec<_>>()
    };
    let seen = audit(builder(&sentinels)).await;
    assert_eq!(alone(&seen), ["grants_alone"], "{seen}");
    assert!(seen.to_string().contains("min-replicas-to-write"));
    let seen = audit(builder(&sentinels).replicas(2)).await;
    assert!(alone(&seen).is_empty(), "{seen}");

    configure(master, "min-replicas-to-write", "1").await;
    configure(master, "min-replicas-max-lag", "10").await;
    let seen = audit(builder(&sentinels)).await;
    assert_eq!(alone(&seen), ["grants_alone_for"], "{seen}");
    let text = seen.to_string();
    assert!(
        text.contains("for 10s and is replaced after 1.5s"),
        "{text}"
    );
    configure(master, "min-replicas-max-lag", "0").await;
    let seen = audit(builder(&sentinels)).await;
    assert_eq!(alone(&seen), ["grants_alone"], "{seen}");
}

#[tokio::test]
async fn sentinels_that_are_down_are_named_and_those_that_are_left_say_that_they_are_too_few() {
    let mut sentinels = RedisSentinels::start().await;
    let urls = sentinels.urls();
    let silent = |place: usize| urls[place].trim_start_matches("redis://").to_owned();
    let store = builder(&sentinels).connect().await.unwrap();
    let locks = LockClient::new(store);
    for place in 0..2 {
        sentinels.sentinels[place].kill9();
        let audit = locks.audit().await.unwrap();
        for place in 0..=place {
            let named = |warning: &Warning| {
                warning.kind == "sentinel_silent"
                    && warning
                        .text
                        .starts_with(&format!("sentinel {} cannot be used: ", silent(place)))
            };
            assert!(warnings(&audit).iter().any(named), "{audit}");
        }
        let seen = sentinels_in(&audit).expect("one answers");
        let expected = format!("{} of 3 answer, 3 known", 2 - place);
        assert!(seen.starts_with(&expected), "{seen}");
    }
    let expected = Warning::new(
        "no_quorum",
        "no failover is possible: 1 of 3 sentinels can be reached, quorum 2",
    );
    eventually("it misses the others", LIMIT, async || {
        let audit = locks.audit().await.unwrap();
        match audit.warnings.contains(&expected) {
            true => Ok(()),
            false => Err(audit.warnings),
        }
    })
    .await;

    sentinels.sentinels[2].kill9();
    let audit = locks.audit().await.unwrap();
    assert_eq!(sentinels_in(&audit), None);
    assert_eq!(audit.deployment, Deployment::Failover);
    let silent = |warning: &&Warning| warning.kind == "sentinel_silent";
    assert_eq!(audit.warnings.iter().filter(silent).count(), 3, "{audit}");
}

#[tokio::test]
async fn sentinels_that_are_not_listed_are_a_warning() {
    let sentinels = RedisSentinels::start().await;
    let one = sentinels.urls().into_iter().take(1);
    let audit = audit(RedisStore::sentinel(one, RedisSentinels::NAME)).await;
    let mut found = audit.warnings.iter();
    let found = found.find(|warning| warning.kind == "unlisted_sentinels");
    let text = &found.expect("it is found").text;
    assert!(text.contains("1 of 3 sentinels"), "{text}");
}

#[tokio::test]
async fn a_failover_that_begins_too_late_for_the_default_lease_is_a_warning() {
    let late = [("down-after-milliseconds", "30000")];
    let sentinels = RedisSentinels::start_with(&late).await;
    let seen = audit(builder(&sentinels)).await;
    let late = |warning: &&Warning| warning.kind == "slow_failover";
    let text = &seen.warnings.iter().find(late).expect("it is found").text;
    assert!(text.contains("below 20s"), "{text}");

    // Just in time.
    for sentinel in &sentinels.sentinels {
        let words = [
            "SENTINEL",
            "SET",
            RedisSentinels::NAME,
            "down-after-milliseconds",
            "19000",
        ];
        sentinel.ask::<()>(&words).await;
    }
    let seen = audit(builder(&sentinels)).await;
    assert_eq!(seen.warnings.iter().find(late), None, "{seen}");
}

#[tokio::test]
async fn a_lone_sentinel_over_a_lone_master_is_a_warning() {
    let mut sentinels = RedisSentinels::start().await;
    // The other sentinels are forgotten, and not only down.
    for sentinel in &mut sentinels.sentinels[1..] {
        sentinel.kill9();
    }
    let only = &sentinels.sentinels[0];
    for replica in &mut sentinels.replicated.servers[1..] {
        replica.kill9();
    }
    let () = only
        .ask(&["SENTINEL", "SET", RedisSentinels::NAME, "quorum", "1"])
        .await;
    let () = only.ask(&["SENTINEL", "RESET", RedisSentinels::NAME]).await;
    let audit = eventually("the replicas are gone", LIMIT, async || {
        let audit = audit(RedisStore::sentinel([only.url()], RedisSentinels::NAME)).await;
        match audit
            .warnings
            .iter()
            .any(|warning| warning.kind == "no_replica")
        {
            true => Ok(audit),
            false => Err(audit.warnings),
        }
    })
    .await;
    // It is still a deployment with failover.
    assert_eq!(audit.deployment, Deployment::Failover);
    let kinds: Vec<_> = audit.warnings.iter().map(|warning| warning.kind).collect();
    assert!(kinds.contains(&"few_sentinels"), "{audit}");
    let seen = sentinels_in(&audit).expect("it answers");
    assert!(seen.contains("quorum 1 reachable"), "{seen}");
}

#[tokio::test]
async fn what_may_not_be_asked_is_a_warning() {
    let sentinels = RedisSentinels::start().await;
    let words = ["ACL", "SETUSER", "default", "-sentinel|ckquorum"];
    for sentinel in &sentinels.sentinels {
        sentinel.ask::<()>(&words).await;
    }
    let words = ["ACL", "SETUSER", "default", "-config|get"];
    let () = sentinels.replicated.master().ask(&words).await;
    let audit = audit(builder(&sentinels)).await;
    let unseen = |rule: &str| {
        let about = |warning: &&Warning| warning.kind == "unseen" && warning.text.ends_with(rule);
        audit.warnings.iter().filter(about).count()
    };
    assert_eq!(unseen("+sentinel|ckquorum"), 1, "{audit}");
    assert!(unseen("+config|get") >= 1, "{audit}");
    let mut kinds = audit.warnings.iter().map(|warning| warning.kind);
    assert!(!kinds.any(|kind| kind == "grants_alone"), "{audit}");
    let seen = sentinels_in(&audit).expect("they answer");
    assert!(seen.contains("quorum 2, down after"), "{seen}");
}

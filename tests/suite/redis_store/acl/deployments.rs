//! The rights that replicas, sentinels and a Cluster need in addition.

use super::*;

/// Rules that Redis 6.2 does not know and does not need.
const OF_SHARDS: [&str; 3] = ["+spublish", "+ssubscribe", "+sunsubscribe"];

/// Creates the user on several servers, with the rules that each server knows.
async fn with_user(servers: impl IntoIterator<Item = &RedisServer>, rules: &AclRules) {
    for server in servers {
        let shards = server.knows_shards().await;
        let known = |rule: &String| shards || !OF_SHARDS.contains(&rule.as_str());
        grant(server, rules.iter().filter(known)).await;
    }
}

#[tokio::test]
async fn replicas_that_acknowledge_need_a_right_of_their_own() {
    let replicated = Replicated::start(1).await;
    let rules = RedisStore::acl_rules(["k:"]).replicas();
    with_user([replicated.master()], &rules).await;
    let store = RedisStore::builder(address(replicated.master()))
        .replicas(1)
        .replica_timeout(LIMIT)
        .connect()
        .await
        .unwrap();
    everything(&store, "k:").await.unwrap();
    assert_eq!(
        refusals(replicated.master()).await,
        Value::Array(Vec::new())
    );
    without(replicated.master(), &rules, "+wait").await;
    let hold = attempt("k:1", LockMode::Reentrant);
    let error = error(&store, &hold).await;
    assert_eq!(error.kind(), StoreErrorKind::Unacknowledged, "{error:?}");
    store.withdraw(&hold, false).await.unwrap();
    let again = RedisStore::builder(address(replicated.master())).replicas(1);
    assert_eq!(missing(&again.connect().await.unwrap_err()), ["+wait"]);
}

#[tokio::test]
async fn following_and_auditing_sentinels_needs_no_right_more() {
    let deployment = RedisSentinels::start().await;
    let rules = RedisStore::acl_rules(["k:"]).audit();
    with_user(&deployment.replicated.servers, &rules).await;
    let store = RedisStore::sentinel(deployment.urls(), RedisSentinels::NAME)
        .servers("redis://locks:secret@any")
        .connect()
        .await
        .unwrap();
    everything(&store, "k:").await.unwrap();
    LockClient::new(store).audit().await.unwrap();
    let master = deployment.replicated.master();
    assert_eq!(refusals(master).await, Value::Array(Vec::new()));
}

#[tokio::test]
async fn a_cluster_needs_rights_of_its_own() {
    let cluster = RedisCluster::start().await;
    let rules = RedisStore::acl_rules(["k:"]).cluster();
    with_user(&cluster.nodes, &rules).await;
    let addresses: Vec<_> = cluster.nodes.iter().map(address).collect();
    let store = RedisStore::cluster(addresses).connect().await.unwrap();
    everything(&store, "k:").await.unwrap();
    for node in &cluster.nodes {
        assert_eq!(refusals(node).await, Value::Array(Vec::new()));
    }
    let audit = LockClient::new(store).audit().await.unwrap();
    assert_eq!(audit.deployment, Deployment::Failover);
    assert_eq!(audit.members.len(), cluster.masters().count(), "{audit}");
}

/// Without the right to publish, the release would fail after the hold has ended.
#[tokio::test]
async fn a_cluster_needs_the_right_to_publish_on_its_kind_of_channels() {
    let cluster = RedisCluster::start().await;
    let shards = cluster.nodes[0].knows_shards().await;
    let addresses: Vec<_> = cluster.nodes.iter().map(address).collect();
    for sharded in [None, Some(false), Some(true)] {
        let (needed, other) = match sharded.unwrap_or(shards) {
            true => ("+spublish", "+publish"),
            false => ("+publish", "+spublish"),
        };
        if sharded == Some(true) && !shards {
            continue;
        }
        let connect = async |without: &str| {
            let rules = RedisStore::acl_rules(["k:"]).cluster();
            for node in &cluster.nodes {
                let known = |rule: &String| {
                    rule != without && (shards || !OF_SHARDS.contains(&rule.as_str()))
                };
                grant(node, rules.iter().filter(known)).await;
            }
            let builder = RedisStore::cluster(addresses.clone());
            match sharded {
                Some(sharded) => builder.sharded_channels(sharded).connect().await,
                None => builder.connect().await,
            }
        };
        let refused = connect(needed).await.unwrap_err();
        assert_eq!(missing(&refused), [needed], "{sharded:?}");
        connect(other).await.unwrap();
    }
}

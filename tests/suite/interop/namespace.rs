//! A client with a name space, and a Redisson whose name mapper puts the same text before each name.

use std::sync::Arc;
use std::time::Duration;

use tower_distributed_lock::{LockClient, Owner, RedisStore};

use super::redisson::Redisson;
use super::{Kind, LEASE, Party, WATCHDOG};
use crate::support::RedisServer;

#[tokio::test]
async fn a_name_space_is_the_name_mapper_of_redisson() {
    for prefix in ["prod-shop:", "app.", "test::", "{app}:"] {
        shares_the_prefix_of_redisson(prefix).await;
    }
}

async fn shares_the_prefix_of_redisson(prefix: &str) {
    let redis = RedisServer::start().await;
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let shop = LockClient::builder(store.clone()).namespace(prefix).build();
    let redisson = Arc::new(Redisson::start_behind(prefix, &redis, WATCHDOG).await);
    let (java, rust) = (
        Party::Java(redisson.thread()),
        Party::Rust(shop, Owner::new()),
    );
    let outside = Party::Rust(LockClient::new(store), Owner::new());
    for kind in [Kind::Reentrant, Kind::Fair, Kind::Fenced, Kind::Write] {
        for name in ["plain", "a{tag}"] {
            let keys = async || redis.dump().await.into_keys().collect::<Vec<_>>();
            for (holder, rival) in [(&java, &rust), (&rust, &java)] {
                let held = holder.lock(kind, name, LEASE).await;
                assert!(
                    keys().await.contains(&format!("{prefix}{name}")),
                    "{prefix} {kind}"
                );
                let refused = rival.try_lock(kind, name, Duration::ZERO).await;
                assert!(refused.is_none(), "{kind} {name}: {refused:?}");
                let elsewhere = outside.try_lock(kind, name, Duration::ZERO).await;
                elsewhere.expect("another name").release().await;
                held.release().await;
                let next = rival.try_lock(kind, name, Duration::from_secs(5)).await;
                next.expect("it is free").release().await;
            }
        }
    }
}

//! Lists of locks while a part of the Cluster cannot tell of its own: that is when operators look at them.

use tower_distributed_lock::store::{ListQuery, LockEntry, Page};
use tower_distributed_lock::{LockAdmin, LockClient, LockError};

use super::{shared, store};
use crate::support::RedisCluster;

async fn listed(admin: &LockAdmin, prefix: &str) -> Page<LockEntry> {
    let query = ListQuery::new().prefix(prefix);
    admin.locks(&query).await.expect("a list")
}

fn names(page: &Page<LockEntry>) -> Vec<&str> {
    let mut names: Vec<_> = page.entries.iter().map(|entry| entry.key.name()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn the_locks_of_the_servers_that_answer_are_listed_while_one_is_down() {
    let settings = [
        ("cluster-node-timeout", "60000"),
        ("cluster-require-full-coverage", "no"),
    ];
    let mut cluster = RedisCluster::start_with(&settings).await;
    let store = store(&cluster).await;
    let (locks, admin) = (LockClient::new(store.clone()), LockAdmin::new(store));
    let (mut guards, mut held) = (Vec::new(), Vec::new());
    for node in 0..3 {
        let name = cluster.name_on(node, &format!("listed-{node}-")).await;
        guards.push(locks.lock(&name).await.unwrap());
        held.push(name);
    }
    let all = listed(&admin, "listed-").await;
    assert_eq!(names(&all), held);
    assert_eq!(all.left_out, [""; 0]);
    cluster.nodes[0].kill9();
    let page = listed(&admin, "listed-").await;
    assert_eq!(names(&page), held[1..]);
    let [why] = &page.left_out[..] else {
        panic!("{page:?}");
    };
    let server = format!("127.0.0.1:{}: ", cluster.nodes[0].port());
    assert!(
        why.starts_with(&server) && why.len() > server.len(),
        "{why}"
    );
    for node in &mut cluster.nodes[1..] {
        node.kill9();
    }
    let none = admin.locks(&ListQuery::new()).await;
    assert!(matches!(none, Err(LockError::Unavailable(_))), "{none:?}");
}

/// In the middle of a move, no server has all keys of the lock.
#[tokio::test]
async fn the_other_locks_are_listed_while_a_slot_moves() {
    let (cluster, store) = shared().await;
    let (locks, admin) = (LockClient::new(store.clone()), LockAdmin::new(store));
    let moving = cluster.name_on(0, "listing-moves-").await;
    let other = cluster.name_on(0, "listing-stays-").await;
    let slot = cluster.slot(&moving).await;
    let _held = [
        locks.lock(&moving).await.unwrap(),
        locks.lock(&other).await.unwrap(),
    ];
    cluster.begin_move(slot, 0, 1).await;
    let page = listed(&admin, "listing-").await;
    cluster.move_keys(slot, 0, 1).await;
    cluster.end_move(slot, 0, 1).await;
    assert_eq!(names(&page), [&other]);
    let [why] = &page.left_out[..] else {
        panic!("{page:?}");
    };
    assert!(why.starts_with(&format!("{moving}: ")), "{why}");
}

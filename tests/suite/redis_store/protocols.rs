//! The store works in the same way with both versions of Redis's protocol.

use tower_distributed_lock::LockAdmin;
use tower_distributed_lock::store::{Fencing, LockStore, Record, Want};

use super::*;
use crate::support::{Ending, Proxy, eventually};

const PROTOCOLS: [&str; 2] = ["resp2", "resp3"];

const LIMIT: Duration = Duration::from_secs(30);

fn address(url: &str, protocol: &str) -> String {
    format!("{url}/?protocol={protocol}")
}

async fn speaking(server: &RedisServer, protocol: &str) -> RedisStore {
    let address = address(&server.url(), protocol);
    RedisStore::connect(address).await.unwrap()
}

#[tokio::test]
async fn connections_for_commands_speak_the_protocol_that_was_asked_for() {
    for protocol in PROTOCOLS {
        let server = RedisServer::start().await;
        let store = speaking(&server, protocol).await;
        let wakeups = store.subscribe(&patient("k", LockMode::Fair)).await;
        // `resp` is shown by Redis 7 and newer; the connections' own greeting by all.
        let clients = server.client_list().await;
        assert_eq!(clients.len(), 3);
        for client in clients {
            let spoken = client.get("resp").map(|version| format!("resp{version}"));
            // Only RESP3 separates messages from answers.
            let expected = if client["sub"] == "0" {
                protocol
            } else {
                "resp3"
            };
            assert!(spoken.is_none_or(|spoken| spoken == expected));
        }
        drop(wakeups);
    }
}

#[tokio::test]
async fn every_mode_excludes_wakes_and_records_in_both_protocols() {
    for protocol in PROTOCOLS {
        let server = RedisServer::start().await;
        let store = speaking(&server, protocol).await;
        for mode in MODES {
            let key = mode.as_str();
            let holder = fenced_if_exclusive(attempt(key, mode));
            assert!(asks(&store, &holder).await);
            let contender = match mode {
                LockMode::Read => LockMode::Write,
                mode => mode,
            };
            let waiter = fenced_if_exclusive(patient(key, contender));
            let mut wakeups = store.subscribe(&waiter).await.unwrap();
            assert!(!asks(&store, &waiter).await);
            assert!(holds(&store, &holder).await);
            assert!(releases(&store, &holder).await);
            woken(&mut wakeups).await;
            assert!(asks(&store, &waiter).await);

            let report = LockAdmin::new(store.clone()).inspect(key).await.unwrap();
            assert_eq!(report.holders.len(), 1);
            let record = Record::new("done", LEASE);
            let ended = store.release(&waiter.hold, Some(&record)).await;
            assert_eq!(ended.unwrap().status, HoldStatus::Held);
            let kept = store.record(&waiter.hold.key).await.unwrap();
            assert_eq!(kept.as_deref(), Some(&b"done"[..]));
        }
        let several: Vec<_> = MODES.map(|mode| attempt(mode.as_str(), mode)).into();
        store.acquire_several(&several, Want::All).await.unwrap();
        for one in &several {
            assert!(releases(&store, one).await);
        }
    }
}

fn fenced_if_exclusive(attempt: Attempt) -> Attempt {
    match attempt.hold.mode {
        LockMode::Read => attempt,
        _ => fenced(attempt, Fencing::default()),
    }
}

#[tokio::test]
async fn a_cut_connection_subscribes_again_in_both_protocols() {
    for protocol in PROTOCOLS {
        let server = RedisServer::start().await;
        let proxy = Proxy::in_front_of(&server).await;
        let store = RedisStore::connect(address(&proxy.url(), protocol)).await;
        let store = store.unwrap();
        let waiter = attempt("k", LockMode::Reentrant);
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        for _ in 0..3 {
            proxy.cut(Ending::Reset).await;
            woken(&mut wakeups).await;
            let holder = attempt("k", LockMode::Reentrant);
            eventually("the store recovers", LIMIT, async || {
                store.acquire(&holder).await?;
                store.release(&holder.hold, None).await
            })
            .await;
            woken(&mut wakeups).await;
        }
        drop(wakeups);
        eventually("no subscription is left", LIMIT, async || {
            server.pubsub_channels().await.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn a_script_that_was_forgotten_is_sent_again_in_both_protocols() {
    for protocol in PROTOCOLS {
        let server = RedisServer::start().await;
        let store = speaking(&server, protocol).await;
        let hold = attempt("k", LockMode::Write);
        assert!(asks(&store, &hold).await);
        let mut redis = server.connection().await;
        let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
        flush.exec_async(&mut redis).await.unwrap();
        assert!(releases(&store, &hold).await);
    }
}

//! Transfers lock two accounts, whatever their order.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use super::{Answer, SOON, answer, locks_in, pair};
use crate::support::{DemoServer, RedisServer, eventually};

pub(super) async fn transfer(server: &str, transfer: Value, hold_ms: u64) -> Answer {
    let url = format!("{server}/transfers?hold_ms={hold_ms}");
    answer(Client::new().post(url).json(&transfer)).await
}

pub(super) async fn account(server: &str, id: &str, hold_ms: u64) -> Answer {
    let url = format!("{server}/accounts/{id}?hold_ms={hold_ms}");
    answer(Client::new().get(url)).await
}

#[tokio::test]
async fn a_transfer_answers_both_balances() {
    let server = DemoServer::start(&[]).await;
    let order = json!({"from": "a", "to": "b/ü", "amount": 300});
    let done = transfer(server.url(), order, 0).await;
    assert_eq!(done.status, StatusCode::OK, "{done:?}");
    assert_eq!(
        done.body,
        json!({
            "from": {"id": "a", "balance": 700},
            "to": {"id": "b/ü", "balance": 1300},
            "balances": {"a": 700, "b/ü": 1300},
        })
    );
    for (id, balance) in [("a", 700), ("b%2F%C3%BC", 1300), ("new", 1000)] {
        let account = account(server.url(), id, 0).await;
        assert_eq!(account.body["balance"], balance, "{account:?}");
        assert_eq!(account.body["mode"], "read");
    }
}

#[tokio::test]
async fn what_cannot_be_transferred_is_said_clearly_and_changes_nothing() {
    let server = DemoServer::start(&[]).await;
    for (order, status) in [
        (json!({"from": "a", "to": "b", "amount": 1001}), 422),
        (json!({"from": "a", "to": "a", "amount": 1}), 400),
        (json!({"from": "a", "to": "b", "amount": 0}), 400),
        (json!({"from": "a", "to": "b", "amount": -1}), 400),
        (json!({"from": "a", "to": "b"}), 400),
        (json!("not a transfer"), 400),
    ] {
        let refused = transfer(server.url(), order.clone(), 0).await;
        assert_eq!(refused.status.as_u16(), status, "{order}: {refused:?}");
        let explained = refused.body.get("error").or(refused.body.get("detail"));
        assert!(explained.is_some(), "{order}: {refused:?}");
    }
    let untouched = account(server.url(), "a", 0).await;
    assert_eq!(untouched.body["balance"], 1000);
}

#[tokio::test]
async fn both_directions_at_once_keep_the_sum_and_never_deadlock_on_memory() {
    let server = DemoServer::start(&[]).await;
    back_and_forth(&[server.url()]).await;
}

#[tokio::test]
async fn both_directions_at_once_keep_the_sum_and_never_deadlock_on_redis() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[]).await;
    back_and_forth(&[a.url(), b.url()]).await;
    eventually("every lock is gone", SOON, async || {
        locks_in(&redis).await.is_empty()
    })
    .await;
}

async fn back_and_forth(servers: &[&str]) {
    const IDS: [&str; 3] = ["a", "b", "c"];
    let begun = Instant::now();
    let transfers = (0..36).map(|i| {
        let (from, to) = (IDS[i % 3], IDS[(i + 1 + i / 3 % 2) % 3]);
        let order = json!({"from": from, "to": to, "amount": i + 1});
        transfer(servers[i % servers.len()], order, 5)
    });
    for done in join_all(transfers).await {
        assert_eq!(done.status, StatusCode::OK, "{done:?}");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    let mut sum = 0;
    for id in IDS {
        sum += account(servers[0], id, 0).await.body["balance"]
            .as_u64()
            .expect("a number");
    }
    assert_eq!(sum, 3000);
}

#[tokio::test]
async fn reading_an_account_waits_for_a_transfer_and_a_transfer_for_readers() {
    const HOLD_MS: u64 = 500;
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[]).await;
    let held = async || {
        eventually("the lock is held", SOON, async || {
            !locks_in(&redis).await.is_empty()
        })
        .await;
    };
    let order = json!({"from": "x", "to": "y", "amount": 1});
    let reading = async {
        held().await;
        account(b.url(), "y", 0).await
    };
    let (_, read) = tokio::join!(transfer(a.url(), order.clone(), HOLD_MS), reading);
    assert_eq!(read.body["balance"], 1001, "after the transfer, not before");

    eventually("every lock is gone", SOON, async || {
        locks_in(&redis).await.is_empty()
    })
    .await;
    let begun = Instant::now();
    let writing = async {
        held().await;
        transfer(b.url(), order, 0).await
    };
    let (read, _) = tokio::join!(account(a.url(), "x", HOLD_MS), writing);
    assert_eq!(read.body["balance"], 999);
    assert!(begun.elapsed() >= Duration::from_millis(HOLD_MS));
}

#[tokio::test]
async fn accounts_of_others_do_not_wait() {
    let server = DemoServer::start(&[("LOCK_WAIT_MS", "100")]).await;
    let order = json!({"from": "a", "to": "b", "amount": 1});
    let others = async {
        eventually("the lock is held", SOON, async || {
            account(server.url(), "a", 0).await.status == StatusCode::LOCKED
        })
        .await;
        let blocked = json!({"from": "c", "to": "a", "amount": 1});
        let blocked = transfer(server.url(), blocked, 0).await;
        assert_eq!(blocked.status, StatusCode::LOCKED);
        let free = json!({"from": "c", "to": "d", "amount": 1});
        let free = transfer(server.url(), free, 0).await;
        assert_eq!(free.status, StatusCode::OK);
    };
    tokio::join!(transfer(server.url(), order, 1500), others);
}

#[tokio::test]
async fn a_server_that_dies_in_a_transfer_moves_nothing_and_frees_both_accounts() {
    let redis = RedisServer::start().await;
    let [mut a, b] = pair(&redis, &[("LOCK_LEASE_MS", "1000")]).await;
    let url = a.url().to_owned();
    tokio::spawn(async move {
        let order = json!({"from": "x", "to": "y", "amount": 500});
        let request = Client::new().post(format!("{url}/transfers?hold_ms=60000"));
        let _ = request.json(&order).send().await;
    });
    eventually("both accounts are locked", SOON, async || {
        locks_in(&redis).await.len() >= 2
    })
    .await;
    a.process.kill9();
    // It waits for ten seconds, and the lease that was not set is thirty.
    let back = json!({"from": "y", "to": "x", "amount": 1});
    let back = transfer(b.url(), back, 0).await;
    assert_eq!(
        back.body["balances"],
        json!({"x": 1001, "y": 999}),
        "{back:?}"
    );
}

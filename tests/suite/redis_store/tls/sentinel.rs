//! Sentinels and servers with only TLS ports, which require client certificates.

use tower_distributed_lock::audit::Warning;
use tower_distributed_lock::{Lease, LockClient, RedisStore, RedisStoreBuilder};

use super::*;
use crate::support::RedisSentinels;

/// Longer than the tests, so that no lock is free because of an expired lease.
const LEASE: Lease = Lease::Renewed(Duration::from_secs(300));

impl Authorities {
    async fn sentinels(&self, settings: &[(&str, &str)]) -> RedisSentinels {
        self.sentinels_of(&NAMES, settings).await
    }

    async fn sentinels_of(&self, names: &[&str], settings: &[(&str, &str)]) -> RedisSentinels {
        RedisSentinels::start_like(self.node(self.ours.signs(names)), settings).await
    }

    fn sentinel_store(&self, sentinels: impl IntoIterator<Item = String>) -> RedisStoreBuilder {
        let builder = RedisStore::sentinel(sentinels, RedisSentinels::NAME);
        let builder = builder.ca_certificate(self.ours.certificate());
        // A long time limit, for a busy machine.
        let builder = builder.connect_timeout(LIMIT);
        showing(builder, &self.ours.signs(&[]))
    }
}

#[tokio::test]
async fn locks_and_wake_ups_work_and_a_failover_is_followed() {
    let authorities = Authorities::new();
    let mut sentinels = authorities.sentinels(&[]).await;
    let store = authorities.sentinel_store(sentinels.urls()).connect().await;
    let store = store.unwrap();
    locks_work(&store, "before").await;

    let (a, b) = (
        LockClient::new(store.clone()),
        LockClient::new(store.clone()),
    );
    let guard = a.lock("held").lease(LEASE).await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = b.lock("held").lease(LEASE).wait(LIMIT).await?;
        guard.release().await
    });
    for replica in &sentinels.replicated.servers[1..] {
        eventually("the replica has the lock", LIMIT, async || {
            replica.dump().await.contains_key("held")
        })
        .await;
    }
    sentinels.replicated.servers[0].kill9();
    let master = sentinels.until_another_than(0).await;
    until_locks_work(&store, "meanwhile").await;
    assert!(!waiter.is_finished() && !guard.is_lost());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
    let port: Vec<String> = sentinels.replicated.servers[master]
        .ask(&["CONFIG", "GET", "port"])
        .await;
    assert_eq!(port, ["port", "0"]);
    locks_work(&store, "after").await;
}

#[tokio::test]
async fn sentinels_that_are_not_trusted_are_refused_one_by_one() {
    let authorities = Authorities::new();
    let mut sentinels = authorities.sentinels(&[]).await;
    let urls = sentinels.urls();
    let early = authorities
        .sentinel_store(urls.clone())
        .connect()
        .await
        .unwrap();
    locks_work(&early, "early").await;
    for (place, (credentials, expected)) in authorities.refused().into_iter().enumerate() {
        // The trusted sentinels are enough.
        let store = authorities
            .sentinel_store(urls.clone())
            .connect()
            .await
            .unwrap();
        locks_work(&store, &format!("k{place}")).await;
        let sentinel = &mut sentinels.sentinels[place];
        sentinel.restart_showing(credentials).await;
        let port = sentinel.port().to_string();
        let text = refusal(authorities.sentinel_store([urls[place].clone()])).await;
        assert!(text.contains(expected) && text.contains(&port), "{text}");
        let audit = LockClient::new(early.clone()).audit().await.unwrap();
        let named = |warning: &Warning| {
            warning.kind == "sentinel_silent"
                && warning.text.contains(expected)
                && warning.text.matches(&port).count() == 1
        };
        assert!(audit.warnings.iter().any(named), "{audit}");
    }
    refusal(authorities.sentinel_store(urls.clone())).await;
    // Existing connections remain.
    locks_work(&early, "k").await;

    let good = authorities.ours.signs(&NAMES);
    sentinels.sentinels[0].restart_showing(good).await;
    locks_work(
        &authorities.sentinel_store(urls).connect().await.unwrap(),
        "k",
    )
    .await;
}

#[tokio::test]
async fn a_master_that_is_not_trusted_grants_nothing_until_another_one_takes_its_place() {
    let authorities = Authorities::new();
    // It is down for the time of a restart, and its replicas are not promoted.
    let patient = [
        ("down-after-milliseconds", "60000"),
        ("failover-timeout", "180000"),
    ];
    let mut sentinels = authorities.sentinels(&patient).await;
    let store = authorities.sentinel_store(sentinels.urls()).connect().await;
    let store = store.unwrap();
    locks_work(&store, "before").await;
    // The third one is refused by its replicas, too.
    for (credentials, expected) in authorities.refused().into_iter().take(2) {
        let master = &mut sentinels.replicated.servers[0];
        master.restart_showing(credentials).await;
        let held = attempt("k", LockMode::Write);
        let port = master.port().to_string();
        eventually("the certificate is seen", LIMIT, async || {
            let error = error(&store, &held).await;
            let text = error.source().unwrap().to_string();
            let told = text.contains(expected) && text.contains(&port);
            match told && error.kind() == StoreErrorKind::Refused {
                true => Ok(()),
                false => Err(error),
            }
        })
        .await;
        assert_eq!(master.dump().await.len(), 0);
        let text = refusal(authorities.sentinel_store(sentinels.urls())).await;
        assert!(text.contains(expected) && text.contains(&port), "{text}");
    }
    sentinels.replicated.until_replicas(2).await;
    sentinels.fail_over().await;
    until_locks_work(&store, "after").await;
}

#[tokio::test]
async fn servers_are_encrypted_as_the_sentinels_are_unless_it_is_said_otherwise() {
    let authorities = Authorities::new();
    let sentinels = authorities.sentinels(&[]).await;
    let builder = || authorities.sentinel_store(sentinels.urls());
    let store = builder().servers("rediss://any/0?protocol=resp3");
    locks_work(&store.connect().await.unwrap(), "k").await;
    // Without encryption, no server understands the client.
    let plain = builder().servers("redis://any").connect().await;
    assert_eq!(plain.unwrap_err().kind(), StoreErrorKind::Transient);
    let without = RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME)
        .ca_certificate(authorities.ours.certificate())
        .connect_timeout(LIMIT);
    // The reason may be lost with the connection.
    assert!(without.connect().await.is_err());
    // Certificates that no connection uses.
    let plain = RedisStore::sentinel(["redis://127.0.0.1:1"], "any");
    let plain = plain.ca_certificate(authorities.ours.certificate());
    let error = plain.connect_lazy().unwrap_err();
    let text = error.source().unwrap().to_string();
    assert!(text.contains("`rediss://`"), "{text}");
}

#[tokio::test]
async fn certificates_for_host_names_need_sentinels_that_announce_them() {
    let authorities = Authorities::new();
    let mut sentinels = authorities.sentinels_of(&["localhost"], &[]).await;
    let urls = sentinels.sentinels.iter();
    let urls: Vec<_> = urls.map(|sentinel| sentinel.tls_url("localhost")).collect();
    let text = refusal(authorities.sentinel_store(urls.clone())).await;
    assert!(text.contains("not valid for name"), "{text}");
    assert!(text.contains("127.0.0.1:"), "{text}");

    sentinels.announce_host_names().await;
    let store = authorities.sentinel_store(urls).connect().await.unwrap();
    locks_work(&store, "before").await;
    sentinels.replicated.servers[0].kill9();
    sentinels.until_another_than(0).await;
    until_locks_work(&store, "after").await;
}

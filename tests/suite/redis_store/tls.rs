//! Encrypted connections: which certificates are trusted, and that locks work in the same way as without
//! TLS.

mod cluster;
mod sentinel;

use std::error::Error;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::store::redis::RedisStoreBuilder;

use super::*;
use crate::support::{Authority, Builder, Credentials, ReservedPort, eventually};

/// A failover takes seconds, here more than elsewhere.
const LIMIT: Duration = Duration::from_secs(90);

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Two authorities that servers trust, of which clients trust the first.
struct Authorities {
    ours: Authority,
    theirs: Authority,
}

impl Authorities {
    fn new() -> Self {
        Self {
            ours: Authority::new("ours"),
            theirs: Authority::new("theirs"),
        }
    }

    /// A server that has only a TLS port, and requires client certificates.
    fn node(&self, credentials: Credentials) -> Builder {
        let node = RedisServer::builder().tls_alone(credentials, &self.ours);
        node.trusting(&self.theirs).mutual(true)
    }

    /// Certificates that our clients refuse, and the messages.
    fn refused(&self) -> [(Credentials, &'static str); 3] {
        [
            (self.theirs.signs(&NAMES), "UnknownIssuer"),
            (
                self.ours.signs(&["redis.example.com"]),
                "not valid for name",
            ),
            (self.ours.signed_long_ago(&NAMES), "expired"),
        ]
    }
}

/// A server that `authority` has signed.
async fn server(authority: &Authority, mutual: bool) -> RedisServer {
    let builder = RedisServer::builder().tls(authority.signs(&NAMES), authority);
    builder.mutual(mutual).start().await
}

/// A builder of a store that trusts `authority`.
fn trusting(server: &RedisServer, authority: &Authority) -> RedisStoreBuilder {
    RedisStore::builder(server.tls_url("localhost")).ca_certificate(authority.certificate())
}

fn showing(builder: RedisStoreBuilder, credentials: &Credentials) -> RedisStoreBuilder {
    builder.client_certificate(credentials.certificate.as_str(), credentials.key.as_str())
}

/// The error of a connection that is refused for ever.
async fn refusal(builder: RedisStoreBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
    error.source().unwrap().to_string()
}

/// Locks in every mode exclude and wake.
async fn locks_work(store: &RedisStore, key: &str) {
    for mode in MODES {
        let key = format!("{key}:{}", mode.as_str());
        let holder = attempt(key.as_str(), mode);
        assert!(asks(store, &holder).await);
        let waiter = match mode {
            LockMode::Read => patient(key, LockMode::Write),
            mode => patient(key, mode),
        };
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        assert!(!asks(store, &waiter).await, "{mode:?} excludes");
        assert!(releases(store, &holder).await);
        woken(&mut wakeups).await;
        assert!(asks(store, &waiter).await && releases(store, &waiter).await);
    }
}

/// The same after the recovery of the store, on each of its connections.
async fn until_locks_work(store: &RedisStore, key: &str) {
    let probes = MODES.map(|mode| attempt(format!("{key}:{}", mode.as_str()), mode));
    eventually("the store recovers", LIMIT, async || {
        for probe in &probes {
            store.subscribe(probe).await?;
            store.acquire(probe).await?;
            store.release(&probe.hold, None).await?;
        }
        Ok::<_, StoreError>(())
    })
    .await;
    locks_work(store, key).await;
}

#[tokio::test]
async fn locks_and_wake_ups_work_through_tls() {
    let authority = Authority::new("ours");
    let server = server(&authority, false).await;
    for host in NAMES {
        let builder = RedisStore::builder(server.tls_url(host));
        let store = builder.ca_certificate(authority.certificate());
        locks_work(&store.connect().await.unwrap(), host).await;
    }
}

#[tokio::test]
async fn locks_and_wake_ups_work_through_mutual_tls() {
    let authority = Authority::new("ours");
    let server = server(&authority, true).await;
    let builder = trusting(&server, &authority);
    let store = showing(builder, &authority.signs(&[])).connect().await;
    locks_work(&store.unwrap(), "k").await;
}

#[tokio::test]
async fn wake_ups_travel_encrypted() {
    let authority = Authority::new("ours");
    let server = server(&authority, false).await;
    let store = trusting(&server, &authority).connect().await.unwrap();
    let wakeups = store.subscribe(&patient("k", LockMode::Fair)).await;
    let clients = server.client_list().await;
    assert_eq!(clients.len(), 3, "two for commands, one that listens");
    let tls = server.tls_url("");
    let (_, port) = tls.rsplit_once(':').unwrap();
    for client in clients {
        // Redis 6.2 reports `laddr` as well; without it the test could not check the port.
        assert!(client["laddr"].ends_with(&format!(":{port}")), "{client:?}");
    }
    drop(wakeups);
}

#[tokio::test]
async fn a_restarted_server_is_found_again_through_mutual_tls() {
    let authority = Authority::new("ours");
    let mut server = server(&authority, true).await;
    let builder = trusting(&server, &authority);
    let store = showing(builder, &authority.signs(&[])).connect().await;
    let store = store.unwrap();
    let waiter = patient("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    assert!(asks(&store, &attempt("k", LockMode::Reentrant)).await);
    server.restart().await;
    woken(&mut wakeups).await;
    until_locks_work(&store, "again").await;
}

#[tokio::test]
async fn a_server_of_a_strange_authority_is_refused() {
    let server = server(&Authority::new("theirs"), false).await;
    let text = refusal(trusting(&server, &Authority::new("ours"))).await;
    assert!(text.contains("UnknownIssuer"), "{text}");
    // The operating system does not trust it either.
    let text = refusal(RedisStore::builder(server.tls_url("localhost"))).await;
    assert!(text.contains("UnknownIssuer"), "{text}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new("ours");
    let expired = authority.signed_long_ago(&NAMES);
    let builder = RedisServer::builder().tls(expired, &authority);
    let server = builder.mutual(false).start().await;
    let text = refusal(trusting(&server, &authority)).await;
    assert!(text.contains("expired"), "{text}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new("ours");
    let elsewhere = authority.signs(&["redis.example.com"]);
    let builder = RedisServer::builder().tls(elsewhere, &authority);
    let server = builder.mutual(false).start().await;
    for host in NAMES {
        let builder = RedisStore::builder(server.tls_url(host));
        let text = refusal(builder.ca_certificate(authority.certificate())).await;
        assert!(text.contains("not valid for name"), "{text}");
    }
}

/// The server refuses after the client's part of the handshake. Its reason may be lost with the connection.
#[tokio::test]
async fn a_missing_or_foreign_client_certificate_is_refused() {
    let authority = Authority::new("ours");
    let server = server(&authority, true).await;
    let stranger = Authority::new("theirs").signs(&[]);
    for builder in [
        trusting(&server, &authority),
        showing(trusting(&server, &authority), &stranger),
    ] {
        let error = builder.connect().await.unwrap_err();
        let kinds = [StoreErrorKind::Refused, StoreErrorKind::Unreachable];
        assert!(kinds.contains(&error.kind()), "{error:?}");
    }
}

/// Redis may also wait for the end of a supposed command: then connecting times out.
#[tokio::test]
async fn a_port_that_answers_in_plain_text_is_refused() {
    let port = ReservedPort::reserve().unwrap();
    let listener = port.listen().unwrap();
    let plain = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let answer = b"-ERR unknown command\r\n";
        client.write_all(answer).await.unwrap();
        client
    });
    let address = format!("rediss://127.0.0.1:{}", port.number());
    let text = refusal(RedisStore::builder(address)).await;
    assert!(text.contains("corrupt message"), "{text}");
    drop(plain);
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let authority = Authority::new("ours");
    let ours = authority.signs(&[]);
    let other = authority.signs(&[]);
    let secure = || RedisStore::builder("rediss://127.0.0.1:1");
    for (builder, expected) in [
        (
            RedisStore::builder("redis://127.0.0.1:1").ca_certificate(authority.certificate()),
            "`rediss://`",
        ),
        (secure().ca_certificate("nonsense"), "CA certificate"),
        (
            secure().client_certificate("nonsense", ours.key.as_str()),
            "client certificate",
        ),
        (
            secure().client_certificate(ours.certificate.as_str(), "nonsense"),
            "private key",
        ),
    ] {
        let error = builder.connect_lazy().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        let text = error.source().unwrap().to_string();
        assert!(text.contains(expected), "{text}");
    }
    let server = server(&authority, true).await;
    let mixed = Credentials {
        key: other.key,
        ..ours
    };
    let text = refusal(showing(trusting(&server, &authority), &mixed)).await;
    assert!(text.contains("keys may not be consistent"), "{text}");
}

#[tokio::test]
async fn private_keys_are_not_shown() {
    let ours = Authority::new("ours").signs(&[]);
    let builder = showing(RedisStore::builder("rediss://127.0.0.1"), &ours);
    let shown = format!("{builder:?}");
    let line = ours.key.lines().nth(1).unwrap();
    assert!(!shown.contains(line) && !shown.contains(&format!("{:?}", line.as_bytes())));
    assert!(!shown.contains("45, 45, 45"), "{shown}");
}

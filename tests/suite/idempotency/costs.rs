//! The cost of a key in the body, in allocated bytes.

use axum::body::{Body, Bytes};
use http::Request;
use stats_alloc::INSTRUMENTED_SYSTEM;
use tower_distributed_lock::idempotency::key;

use super::{is_replay, remembering, send};
use crate::support::{Console, Peer};

const MIB: usize = 1024 * 1024;

/// The role: serves requests whose key is a field of a body of 2 MiB, and reports the allocated bytes per request.
///
/// It is a process of its own, because the allocations of a process are counted together.
pub(crate) async fn namer(mut console: Console) {
    let (_store, _locks, layer) = remembering();
    let app = super::answering(async || ()).layer(layer.key(key::stripe()).required());
    let members = r#"{"":0},"#.repeat(2 * MIB / 7 - 10);
    let json = Bytes::from(format!(r#"{{"x":[{members}0],"id":"evt_1"}}"#));
    let request = || {
        Request::post("/payments")
            .body(Body::from(json.clone()))
            .unwrap()
    };
    send(&app, request()).await;
    let before = INSTRUMENTED_SYSTEM.stats().bytes_allocated;
    assert!(is_replay(&send(&app, request()).await), "it has a name");
    console.say(INSTRUMENTED_SYSTEM.stats().bytes_allocated - before);
    console.hear().await;
}

#[tokio::test]
async fn a_field_of_a_long_body_costs_no_more_than_the_body() {
    let mut peer = Peer::start("namer");
    let allocated: usize = peer.hear().await.parse().unwrap();
    assert!((2 * MIB - 100..4 * MIB).contains(&allocated), "{allocated}");
}

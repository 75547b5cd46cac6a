//! Where senders put the idempotency key.

use axum::body::Body;
use axum::response::Response;
use http::Request;
use tower_distributed_lock::idempotency::key::{
    cloud_events, github, idempotency_key, shopify, standard_webhooks, stripe,
};
use tower_distributed_lock::key::{self, KeyExtractor};
use tower_distributed_lock::{DistributedLockLayer, LockKey, idempotency};

use super::{Runs, answering, is_replay, payments, problem, remembering, send};

type Sent = (&'static [(&'static str, &'static str)], &'static str);

fn sent((headers, body): Sent) -> Request<Body> {
    let mut request = Request::post("/payments");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

/// The answer to the second of two requests.
async fn second(extractor: impl KeyExtractor + Clone + 'static, requests: [Sent; 2]) -> Response {
    let (_store, _locks, layer) = remembering();
    let app = answering(|| async {}).layer(layer.key(extractor).required());
    let [first, second] = requests;
    send(&app, sent(first)).await;
    send(&app, sent(second)).await
}

#[tokio::test(start_paused = true)]
async fn every_provider_names_its_requests() {
    type Case = (Sent, Sent);
    async fn check(name: &str, extractor: impl KeyExtractor + Clone + 'static, (one, other): Case) {
        let repeat = second(extractor.clone(), [one, one]).await;
        assert!(is_replay(&repeat), "{name}: a repeat");
        let next = second(extractor.clone(), [one, other]).await;
        assert_eq!(next.status(), 200, "{name}: another");
        assert!(!is_replay(&next), "{name}: another");
        let (status, problem) = problem(second(extractor, [one, (&[], "{}")]).await).await;
        assert_eq!(
            (status, &problem["type"]),
            (400, &"key-missing".into()),
            "{name}: none"
        );
        assert!(problem["detail"].is_string(), "{name}: what is missing?");
    }
    check(
        "Idempotency-Key",
        idempotency_key(),
        (
            (&[("idempotency-key", "\"a\"")], ""),
            (&[("idempotency-key", "\"b\"")], ""),
        ),
    )
    .await;
    check(
        "Standard Webhooks",
        standard_webhooks(),
        (
            (&[("webhook-id", "msg_1")], ""),
            (&[("webhook-id", "msg_2")], ""),
        ),
    )
    .await;
    check(
        "GitHub",
        github(),
        (
            (&[("x-github-delivery", "1")], ""),
            (&[("x-github-delivery", "2")], ""),
        ),
    )
    .await;
    check(
        "Shopify",
        shopify(),
        (
            (&[("x-shopify-event-id", "1")], ""),
            (&[("x-shopify-event-id", "2")], ""),
        ),
    )
    .await;
    check(
        "Stripe",
        stripe(),
        ((&[], r#"{"id":"evt_1"}"#), (&[], r#"{"id":"evt_2"}"#)),
    )
    .await;
    check(
        "CloudEvents, binary",
        cloud_events(),
        (
            (&[("ce-source", "/a"), ("ce-id", "1")], ""),
            (&[("ce-source", "/b"), ("ce-id", "1")], ""),
        ),
    )
    .await;
    const STRUCTURED: &[(&str, &str)] = &[(
        "content-type",
        "application/cloudevents+json; charset=utf-8",
    )];
    check(
        "CloudEvents, structured",
        cloud_events(),
        (
            (STRUCTURED, r#"{"source":"/a","id":"1"}"#),
            (STRUCTURED, r#"{"source":"/a","id":"2"}"#),
        ),
    )
    .await;
    check(
        "a header of one's own",
        key::header("x-request"),
        ((&[("x-request", "1")], ""), (&[("x-request", "2")], "")),
    )
    .await;
    check(
        "a field of the body",
        key::json_field("order", "/order/id"),
        (
            (&[], r#"{"order":{"id":1}}"#),
            (&[], r#"{"order":{"id":2}}"#),
        ),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_quotes_are_not_part_of_the_key() {
    let repeat = second(
        idempotency_key(),
        [
            (&[("idempotency-key", "\"8e03\"")], ""),
            (&[("idempotency-key", "8e03")], ""),
        ],
    )
    .await;
    assert!(is_replay(&repeat));
}

/// The HTTP binding of CloudEvents percent-encodes what is in a header, and allows quotes around it.
#[tokio::test(start_paused = true)]
async fn an_event_has_one_key_in_both_modes() {
    const IN_HEADERS: [&[(&str, &str)]; 2] = [
        &[("ce-source", "/caf%C3%A9,%22"), ("ce-id", "1%25")],
        &[("ce-source", r#""/caf%C3%A9,\"""#), ("ce-id", r#""1%25""#)],
    ];
    const IN_BODY: &[(&str, &str)] = &[("content-type", "application/cloudevents+json")];
    let body = r#"{"source":"/café,\"","id":"1%"}"#;
    for in_headers in IN_HEADERS {
        let events = [(in_headers, body), (IN_BODY, body)];
        let repeat = second(cloud_events(), events).await;
        // One key for requests that differ in their media type.
        assert_eq!(repeat.status(), 422, "{in_headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_one_key_is_400() {
    let long: &'static str = "x".repeat(5000).leak();
    let bad: [&'static [(&str, &str)]; 5] = [
        &[("idempotency-key", "a"), ("idempotency-key", "b")],
        &[("idempotency-key", "a"), ("idempotency-key", "a")],
        &[("idempotency-key", "\"a\", \"b\"")],
        &[("idempotency-key", "\"a")],
        &[("idempotency-key", "")],
    ];
    let long: &'static [(&str, &str)] = vec![("idempotency-key", long)].leak();
    for headers in bad.into_iter().chain([long]) {
        is_refused(idempotency_key(), headers).await;
    }
}

/// It is unknown whether these quotes belong to the id.
#[tokio::test(start_paused = true)]
async fn an_event_whose_quotes_are_not_around_the_whole_is_400() {
    const BAD: [&[(&str, &str)]; 4] = [
        &[("ce-source", "/a"), ("ce-id", "\"1")],
        &[("ce-source", "/a"), ("ce-id", "\"1\"2")],
        &[("ce-source", "/a"), ("ce-id", "\"\"")],
        &[("ce-source", "\"/a"), ("ce-id", "1")],
    ];
    for headers in BAD {
        is_refused(cloud_events(), headers).await;
    }
}

async fn is_refused(
    extractor: impl KeyExtractor + Clone + 'static,
    headers: &'static [(&'static str, &'static str)],
) {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer.key(extractor));
    let (status, problem) = problem(send(&app, sent((headers, ""))).await).await;
    let refused = (status, problem["type"].as_str());
    assert_eq!(refused, (400, Some("key-invalid")), "{headers:?}");
    assert_eq!(runs.count(), 0);
}

/// These providers sign the body and not the id in the header.
#[tokio::test(start_paused = true)]
async fn a_captured_body_under_the_id_of_another_delivery_does_not_take_its_place() {
    async fn check(name: &str, extractor: impl KeyExtractor + Clone + 'static, genuine: Sent) {
        let captured = (genuine.0, "an older body");
        let answer = second(extractor, [captured, genuine]).await;
        assert_eq!(answer.status(), 200, "{name}");
        assert!(!is_replay(&answer), "{name}");
    }
    let github = (&[("x-github-delivery", "2")] as &[_], "{\"push\":2}");
    check("GitHub", idempotency::key::github(), github).await;
    let shopify = (&[("x-shopify-event-id", "2")] as &[_], "{\"order\":2}");
    check("Shopify", idempotency::key::shopify(), shopify).await;
}

/// RFC 9110, 8.3.1: type and subtype are case-insensitive; another type may begin with the same letters.
#[tokio::test(start_paused = true)]
async fn a_media_type_is_compared_as_a_whole_and_in_any_case() {
    type Headers = &'static [(&'static str, &'static str)];
    const EVENT: &str = r#"{"source":"/a","id":"1"}"#;
    let structured: [Headers; 3] = [
        &[("content-type", "Application/CloudEvents+JSON")],
        &[("content-type", "application/cloudevents+json;charset=UTF-8")],
        &[("content-type", "application/cloudevents+json ; a=b")],
    ];
    for headers in structured {
        let repeat = second(cloud_events(), [(headers, EVENT); 2]).await;
        assert!(is_replay(&repeat), "{headers:?}");
    }
    let binary: [Headers; 2] = [
        &[("content-type", "application/cloudevents+jsonp")],
        &[("content-type", "application/cloudevents+json-seq")],
    ];
    for headers in binary {
        let (status, problem) = problem(second(cloud_events(), [(headers, EVENT); 2]).await).await;
        assert_eq!((status, &problem["type"]), (400, &"key-missing".into()));
    }
    let twice: Headers = &[
        ("content-type", "application/cloudevents+json"),
        ("content-type", "text/plain"),
    ];
    let (status, problem) = problem(second(cloud_events(), [(twice, EVENT); 2]).await).await;
    assert_eq!((status, &problem["type"]), (400, &"key-invalid".into()));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_name_the_key_properly_is_400_or_passes() {
    for (body, kind) in [
        ("not json", "key-invalid"),
        (r#"{"id":{}}"#, "key-invalid"),
        (r#"{"id":true}"#, "key-invalid"),
        (r#"{"id":""}"#, "key-invalid"),
        (r#"{"id":null}"#, "key-missing"),
        ("[]", "key-missing"),
    ] {
        let answer = second(stripe(), [(&[], body), (&[], body)]).await;
        let (status, problem) = problem(answer).await;
        assert_eq!((status, &problem["type"]), (400, &kind.into()), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_reads_the_body_and_the_handler_still_gets_it() {
    let (_store, _locks, layer) = remembering();
    let layer = layer.key(|parts: &http::request::Parts| {
        let body = key::body(parts)?;
        let first = body.split(|byte| *byte == b' ').next().unwrap_or_default();
        let first = String::from_utf8_lossy(first).into_owned();
        Ok::<_, key::KeyError>(LockKey::from_parts("first", [first]))
    });
    let echo = axum::Router::new()
        .route(
            "/payments",
            axum::routing::post(|body: String| async { body }),
        )
        .layer(layer);
    let answer = send(&echo, sent((&[], "one two"))).await;
    assert_eq!(super::text(answer).await, "one two");
    assert!(is_replay(&send(&echo, sent((&[], "one two"))).await));
    assert_eq!(send(&echo, sent((&[], "one three"))).await.status(), 422);
    assert!(!is_replay(&send(&echo, sent((&[], "two"))).await));
}

/// The same extractors name locks, where the layer has read the body.
#[tokio::test(start_paused = true)]
async fn a_lock_layer_locks_what_is_in_the_body_if_it_reads_it() {
    let (_store, locks, _layer) = remembering();
    let lock = DistributedLockLayer::new(locks)
        .mode(tower_distributed_lock::LockMode::Reentrant)
        .key(key::json_field("order", "/order"));
    let handler = async |lock: tower_distributed_lock::LockHandle| lock.key().to_string();
    let route = axum::Router::new().route("/payments", axum::routing::post(handler));
    let app = route.clone().layer(lock.clone());
    let answer = send(&app, sent((&[], r#"{"order":"7"}"#))).await;
    assert_eq!(super::text(answer).await, "order:7");
    let app = route.layer(lock.stream_body());
    let (status, problem) = problem(send(&app, sent((&[], r#"{"order":"7"}"#))).await).await;
    assert_eq!(
        (status, &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
}

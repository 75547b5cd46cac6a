//! Which answers are recorded, and which parts of them.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use tower_distributed_lock::idempotency::Recording;
use tower_distributed_lock::{DistributedLockLayer, LockMode, key};

use super::{Runs, answering, is_replay, pay, remembering, text};

#[tokio::test(start_paused = true)]
async fn what_a_repeat_cannot_change_is_recorded_and_nothing_else() {
    for status in 200..=599 {
        let status = StatusCode::from_u16(status).unwrap();
        let (_store, _locks, layer) = remembering();
        let app = answering(move || async move { status }).layer(layer);
        assert_eq!(pay(&app).await.status(), status);
        let recorded = is_replay(&pay(&app).await);
        let expected = matches!(status.as_u16(), 200..=399 | 402 | 410);
        assert_eq!(recorded, expected, "{status}");
    }
}

/// A record has a response, and no connection that could be handed over.
#[tokio::test(start_paused = true)]
async fn a_connection_that_switches_protocols_is_not_recorded_whatever_the_closure_says() {
    for records_all in [false, true] {
        let (_store, locks, layer) = remembering();
        let layer = match records_all {
            true => layer.record_if(|_| true),
            false => layer,
        };
        let runs = Runs::default();
        let counted = runs.clone();
        let app = answering(move || {
            counted.add();
            let headers = [("connection", "upgrade"), ("upgrade", "chat")];
            async move { (StatusCode::SWITCHING_PROTOCOLS, headers) }
        })
        .layer(layer);
        for run in 1..=2 {
            let answer = pay(&app).await;
            assert!(!is_replay(&answer), "all are recorded: {records_all}");
            assert_eq!(answer.status(), 101);
            assert_eq!(answer.headers()["upgrade"], "chat");
            assert_eq!(runs.count(), run);
            assert_eq!(locks.keys_in_use(), 0, "the head goes out without the lock");
        }
    }
}

/// The first request was malformed, and its sender has corrected it.
#[tokio::test(start_paused = true)]
async fn what_an_extractor_refuses_is_not_recorded() {
    let (_store, _locks, layer) = remembering();
    let pay = async |Json(amount): Json<u64>| format!("paid {amount}");
    let app = Router::new().route("/payments", post(pay)).layer(layer);
    let send = async |media_type: &str, body: &str| {
        let request = Request::post("/payments")
            .header("idempotency-key", "k")
            .header("content-type", media_type)
            .body(Body::from(body.to_owned()));
        super::send(&app, request.unwrap()).await
    };
    assert_eq!(send("text/plain", "7").await.status(), 415);
    assert_eq!(send("application/json", "nonsense").await.status(), 400);
    assert_eq!(send("application/json", "\"7\"").await.status(), 422);
    let paid = send("application/json", "7").await;
    assert!(!is_replay(&paid));
    assert_eq!(text(paid).await, "paid 7");
    assert!(is_replay(&send("application/json", "7").await));
}

#[tokio::test(start_paused = true)]
async fn a_closure_decides_otherwise() {
    let (_store, _locks, layer) = remembering();
    let layer = layer.record_if(|response| response.status == StatusCode::BAD_GATEWAY);
    for (status, recorded) in [(StatusCode::BAD_GATEWAY, true), (StatusCode::OK, false)] {
        let app = answering(move || async move { status }).layer(layer.clone());
        let path_apart = super::request(status.as_str(), "");
        super::send(&app, path_apart).await;
        let repeat = super::send(&app, super::request(status.as_str(), "")).await;
        assert_eq!(is_replay(&repeat), recorded, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cookie_is_for_the_first_client_alone() {
    let (_store, _locks, layer) = remembering();
    let app = answering(|| async { ([("set-cookie", "session=alice")], "paid") }).layer(layer);
    let first = pay(&app).await;
    assert_eq!(first.headers()["set-cookie"], "session=alice");
    let repeat = pay(&app).await;
    assert!(is_replay(&repeat));
    assert_eq!(repeat.headers().get("set-cookie"), None);
    assert_eq!(text(repeat).await, "paid");
}

/// The first caller's origin, trace and encoding are not those of the caller that repeats.
#[tokio::test(start_paused = true)]
async fn what_belongs_to_one_answer_is_not_replayed() {
    const OF_ONE: [&str; 29] = [
        "date",
        "server-timing",
        "traceparent",
        "tracestate",
        "traceresponse",
        "request-id",
        "x-request-id",
        "x-correlation-id",
        "correlation-id",
        "x-amz-request-id",
        "x-amzn-requestid",
        "ratelimit",
        "ratelimit-remaining",
        "b3",
        "x-b3-traceid",
        "x-trace-id",
        "x-amzn-trace-id",
        "x-cloud-trace-context",
        "sentry-trace",
        "cf-ray",
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "access-control-expose-headers",
        "keep-alive",
        "x-ratelimit-remaining",
        "retry-after",
        "age",
        "via",
        "proxy-authenticate",
    ];
    let (_store, _locks, layer) = remembering();
    let app = answering(|| async {
        let mut headers = HeaderMap::new();
        for name in OF_ONE.into_iter().chain(["location"]) {
            headers.insert(name, HeaderValue::from_static("first"));
        }
        headers
    })
    .layer(layer);
    let first = pay(&app).await;
    let repeat = pay(&app).await;
    assert!(is_replay(&repeat));
    for name in OF_ONE {
        assert_eq!(first.headers()[name], "first");
        assert_eq!(repeat.headers().get(name), None, "{name}");
    }
    assert_eq!(repeat.headers()["location"], "first");
}

/// A layer further in that compresses would make a record that another client cannot read.
#[tokio::test(start_paused = true)]
async fn an_answer_is_recorded_in_no_encoding_that_one_client_asked_for() {
    let (_store, _locks, layer) = remembering();
    let compressing = async |headers: HeaderMap| match headers.get("accept-encoding") {
        Some(_) => ([("content-encoding", "gzip")], "packed").into_response(),
        None => "plain".into_response(),
    };
    let app = Router::new()
        .route("/payments", post(compressing))
        .layer(layer);
    for accepted in [Some("gzip"), None] {
        let mut request = super::request("k", "{}");
        if let Some(accepted) = accepted {
            let headers = request.headers_mut();
            headers.insert("accept-encoding", accepted.parse().unwrap());
        }
        let answer = super::send(&app, request).await;
        assert_eq!(is_replay(&answer), accepted.is_none());
        assert_eq!(answer.headers().get("content-encoding"), None);
        assert_eq!(text(answer).await, "plain");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_every_header_line_as_it_was() {
    let (_store, _locks, layer) = remembering();
    let app = answering(|| async {
        let mut headers = HeaderMap::new();
        headers.insert("x-bytes", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.insert("date", HeaderValue::from_static("yesterday"));
        let cookies = AppendHeaders([
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "b=2; HttpOnly"),
            ("set-cookie", "a=3"),
        ]);
        let recorded = Extension(Recording::WithCookies);
        (headers, cookies, recorded, [("etag", "\"1\"")], "body")
    })
    .layer(layer);
    let mut first = pay(&app).await;
    let mut repeat = pay(&app).await;
    assert!(is_replay(&repeat));
    repeat.headers_mut().remove("idempotent-replayed");
    assert_eq!(first.headers_mut().remove("date").unwrap(), "yesterday");
    assert_eq!(first.headers(), repeat.headers());
    let cookies: Vec<_> = repeat.headers().get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1; Path=/", "b=2; HttpOnly", "a=3"]);
    assert_eq!(text(repeat).await, text(first).await);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_goes_out_whole_and_unrecorded() {
    for (length, recorded) in [(100, true), (101, false)] {
        let (_store, _locks, layer) = remembering();
        let app = answering(move || async move { "x".repeat(length) });
        let app = app.layer(layer.response_limit(100));
        for repeated in [false, true] {
            let answer = pay(&app).await;
            assert_eq!(is_replay(&answer), repeated && recorded);
            assert_eq!(text(answer).await.len(), length);
        }
    }
}

/// A body that a layer further in wraps, such as one with a time limit, does not tell its length.
#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_that_ends_within_the_limit_is_recorded() {
    for (length, recorded) in [(0, true), (100, true), (101, false)] {
        let (_store, _locks, layer) = remembering();
        let app = answering(move || async move {
            let frames = (0..length).map(|_| Ok::<_, Infallible>(Bytes::from_static(b"x")));
            let frames = stream::iter(frames).then(async |frame| {
                tokio::task::yield_now().await;
                frame
            });
            Body::from_stream(frames)
        });
        let app = app.layer(layer.response_limit(100));
        for repeated in [false, true] {
            let answer = pay(&app).await;
            assert_eq!(is_replay(&answer), repeated && recorded, "{length}");
            assert_eq!(text(answer).await.len(), length);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_body_goes_out_at_once_and_unrecorded_unless_its_handler_says_that_it_ends() {
    for recording in [None, Some(Recording::Always), Some(Recording::WithCookies)] {
        let (_store, _locks, layer) = remembering();
        let app = answering(move || async move {
            let late = Body::from_stream(stream::once(async {
                tokio::time::sleep(Duration::from_secs(200)).await;
                Ok::<_, Infallible>("late")
            }));
            (recording.map(Extension), late)
        })
        .layer(layer);
        for repeated in [false, true] {
            let began = tokio::time::Instant::now();
            let answer = pay(&app).await;
            let waits = recording.is_some() && !repeated;
            assert_eq!(began.elapsed().as_secs(), if waits { 200 } else { 0 });
            assert_eq!(is_replay(&answer), repeated && recording.is_some());
            assert_eq!(text(answer).await, "late");
        }
    }
}

/// A body with this declared length and these frames.
fn promised(length: u64, frames: Vec<Result<http_body::Frame<Bytes>, &'static str>>) -> Body {
    struct Promised<B>(B, u64);
    impl<B: http_body::Body + Unpin> http_body::Body for Promised<B> {
        type Data = B::Data;
        type Error = B::Error;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
            std::pin::Pin::new(&mut self.0).poll_frame(cx)
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.1)
        }
    }
    Body::new(Promised(StreamBody::new(stream::iter(frames)), length))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_differs_from_its_length_reaches_the_client_unchanged() {
    type Frames = fn() -> Vec<Result<http_body::Frame<Bytes>, &'static str>>;
    let cases: [(&str, Frames, &[&str]); 3] = [
        (
            "breaks off",
            || vec![frame("ab"), Err("gone")],
            &["ab", "gone"],
        ),
        (
            "is longer",
            || vec![frame("ab"), frame("cdefg"), frame("h")],
            &["ab", "cdefg", "h"],
        ),
        (
            "has trailers",
            || {
                vec![
                    frame("abcd"),
                    Ok(http_body::Frame::trailers(HeaderMap::new())),
                ]
            },
            &["abcd", "trailers"],
        ),
    ];
    for (what, frames, expected) in cases {
        let (_store, _locks, layer) = remembering();
        let runs = Runs::default();
        let counted = runs.clone();
        let app = answering(move || {
            counted.add();
            async move { promised(4, frames()).into_response() }
        })
        .layer(layer.response_limit(4));
        for _ in 0..2 {
            let answer = pay(&app).await;
            assert!(!is_replay(&answer), "{what}");
            let mut body = answer.into_body();
            let mut seen = Vec::new();
            while let Some(next) = body.frame().await {
                seen.push(match next.map(http_body::Frame::into_data) {
                    Ok(Ok(data)) => String::from_utf8(data.to_vec()).unwrap(),
                    Ok(Err(_)) => "trailers".into(),
                    Err(error) => error.to_string(),
                });
            }
            assert_eq!(seen, expected, "{what}");
        }
        assert_eq!(runs.count(), 2, "{what}");
    }
}

/// Otherwise the client takes a part of the response for the whole.
#[tokio::test(start_paused = true)]
async fn a_body_that_ends_before_its_length_is_not_recorded_and_breaks_off() {
    let of_its_hint = || promised(4, vec![frame("ab")]).into_response();
    let of_its_head = || ([("content-length", "4")], "ab").into_response();
    let far_too_short = || ([("content-length", "1000000")], "ab").into_response();
    for handler in [of_its_hint, of_its_head, far_too_short] {
        let (_store, _locks, layer) = remembering();
        let app = answering(move || async move { handler() }).layer(layer);
        for _ in 0..2 {
            let answer = pay(&app).await;
            assert!(!is_replay(&answer));
            let mut body = answer.into_body();
            let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(data, "ab");
            let error = body.frame().await.unwrap().unwrap_err().to_string();
            assert!(error.contains("`Content-Length`"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_response_of_64_kib_is_recorded_and_a_longer_one_is_not() {
    for (length, recorded) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        let (_store, _locks, layer) = remembering();
        let app = answering(move || async move { "x".repeat(length) }).layer(layer);
        assert_eq!(text(pay(&app).await).await.len(), length);
        assert_eq!(is_replay(&pay(&app).await), recorded, "{length}");
    }
}

fn frame(text: &'static str) -> Result<http_body::Frame<Bytes>, &'static str> {
    Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test(start_paused = true)]
async fn the_answers_of_a_lock_layer_further_in_are_not_the_handlers() {
    let (_store, locks, layer) = remembering();
    let lock = DistributedLockLayer::new(locks.clone())
        .mode(LockMode::Reentrant)
        .key(key::path())
        .wait(Duration::ZERO)
        .rejection(|rejection| {
            let rejection = rejection.clone();
            rejection.with_status(StatusCode::GONE).to_response()
        });
    let app = answering(|| async { "done" }).layer(lock).layer(layer);
    let held = locks.lock("path:/payments").await.unwrap();
    assert_eq!(pay(&app).await.status(), 410);
    held.release().await.unwrap();
    let answer = pay(&app).await;
    assert_eq!(answer.status(), 200);
    assert!(!is_replay(&answer));
    assert!(is_replay(&pay(&app).await));
}

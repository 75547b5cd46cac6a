//! Signatures of webhooks.

use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answer;
use super::webhooks::{SECRET, now, sign, webhook};
use crate::support::DemoServer;

#[tokio::test]
async fn a_webhook_without_a_valid_recent_signature_is_401() {
    let encoded = format!("whsec_{}", BASE64_STANDARD.encode(SECRET));
    for secret in [SECRET, &encoded] {
        let server = DemoServer::start(&[("WEBHOOK_SECRET", secret)]).await;
        let body = json!({"order": "7"}).to_string();
        let good = sign(SECRET, "m", now(), &body);
        let forged = sign("another secret", "m", now(), &body);
        let old = now() - 301;
        let early = now() + 330;
        let cases = [
            ("signed", now(), good.clone(), 200),
            (
                "one of several",
                now(),
                format!("v1a,x v1,!! {forged} {good}"),
                200,
            ),
            ("forged", now(), forged, 401),
            (
                "of another webhook",
                now(),
                sign(SECRET, "n", now(), &body),
                401,
            ),
            (
                "of another body",
                now(),
                sign(SECRET, "m", now(), "{}"),
                401,
            ),
            ("of another time", now() - 5, good.clone(), 401),
            ("old", old, sign(SECRET, "m", old, &body), 401),
            (
                "from the future",
                early,
                sign(SECRET, "m", early, &body),
                401,
            ),
            ("of another version", now(), good.replace("v1,", "v2,"), 401),
            ("empty", now(), String::new(), 401),
        ];
        for (what, timestamp, signature, status) in cases {
            let request = Client::new()
                .post(format!("{}/webhooks/orders", server.url()))
                .header("webhook-id", "m")
                .header("webhook-timestamp", timestamp)
                .header("webhook-signature", signature)
                .body(body.clone());
            let answer = answer(request).await;
            assert_eq!(answer.status.as_u16(), status, "{what}: {answer:?}");
        }
        for missing in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            let mut request = webhook(server.url(), "m", "7", 0)
                .build()
                .expect("a request");
            request.headers_mut().remove(missing);
            let answer = Client::new().execute(request).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{missing}");
        }
    }
}

#[tokio::test]
async fn a_server_without_a_secret_takes_no_webhooks() {
    let server = DemoServer::start(&[]).await;
    let refused = answer(webhook(server.url(), "msg_1", "7", 0)).await;
    assert_eq!(refused.status, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(refused.body["error"], "this server has no WEBHOOK_SECRET");
}

#[tokio::test]
async fn a_webhook_that_breaks_off_is_400_and_a_long_one_is_413() {
    let server = DemoServer::start(&[("WEBHOOK_SECRET", SECRET)]).await;
    // The first is one byte longer than the limit, so that nothing remains unread.
    let long = ["content-length: 65537\r\n\r\n", &"x".repeat(65537)].concat();
    let broken = "transfer-encoding: chunked\r\n\r\n6\r\nbroken\r\nno length\r\n";
    for (rest, status) in [(&*long, "413"), (broken, "400")] {
        let answer = exchange(&server, rest).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{answer}");
    }
}

/// Sends a webhook with this end, and reads until the server closes.
async fn exchange(server: &DemoServer, rest: &str) -> String {
    let address = server.url().trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await.expect("a connection");
    let head = "POST /webhooks/orders HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let sent = [head, rest].concat();
    socket.write_all(sent.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    answer
}

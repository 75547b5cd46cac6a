//! A response whose `Content-Length` is not the length of its body, on a connection that several requests share.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::stream;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Runs, remembering};

/// A body whose second half looks like another response.
const BODY: &str = "helloHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";

/// The length of `BODY`.
const LENGTH: &str = "47";

/// Serves with hyper, which enforces the declared length only for bodies of unknown length.
pub(super) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(app);
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    address
}

/// A response as a client reads it from the socket.
#[derive(Debug)]
struct Read {
    status: String,
    headers: HashMap<String, String>,
    body: String,
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

async fn exactly(stream: &mut BufReader<TcpStream>, length: usize) -> String {
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

/// Sends a request and reads one response.
async fn exchange(stream: &mut BufReader<TcpStream>, request: &str) -> Read {
    stream
        .get_mut()
        .write_all(request.as_bytes())
        .await
        .unwrap();
    let status = line(stream).await;
    let mut headers = HashMap::new();
    while let Some((name, value)) = line(stream).await.split_once(": ") {
        let other = headers.insert(name.to_owned(), value.to_owned());
        assert_eq!(other, None, "{name} is there twice");
    }
    let body = match headers.get("content-length") {
        Some(length) => exactly(stream, length.parse().unwrap()).await,
        None => {
            assert_eq!(headers["transfer-encoding"], "chunked");
            let mut body = String::new();
            loop {
                let length = usize::from_str_radix(&line(stream).await, 16).unwrap();
                body += &exactly(stream, length).await;
                assert_eq!(line(stream).await, "");
                if length == 0 {
                    break body;
                }
            }
        }
    };
    Read {
        status,
        headers,
        body,
    }
}

const PAY: &str =
    "POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n";
const LOOK: &str = "GET /balance HTTP/1.1\r\nhost: test\r\n\r\n";

/// A body of unknown length.
fn of_unknown_length() -> Body {
    Body::from_stream(stream::iter([Ok::<_, Infallible>(Bytes::from_static(
        BODY.as_bytes(),
    ))]))
}

/// The answers to three requests on one connection: a payment, its repeat, and another client's balance.
async fn three(lengths: &'static [&'static str], body: fn() -> Body) -> (usize, [Read; 3]) {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let counted = runs.clone();
    let pay = move || {
        counted.add();
        let mut response = Response::new(body());
        for length in lengths {
            let length = length.parse().unwrap();
            response.headers_mut().append("content-length", length);
        }
        async move { response }
    };
    let app = Router::new()
        .route("/payments", post(pay).route_layer(layer))
        .route("/balance", get(async || "balance"));
    let stream = TcpStream::connect(serve(app).await).await.unwrap();
    let mut stream = BufReader::new(stream);
    let responses = [
        exchange(&mut stream, PAY).await,
        exchange(&mut stream, PAY).await,
        exchange(&mut stream, LOOK).await,
    ];
    (runs.count(), responses)
}

#[tokio::test]
async fn a_false_content_length_splits_no_response_and_is_not_recorded() {
    /// The lines of `content-length`, and the body.
    type Case = (&'static [&'static str], fn() -> Body);
    let cases: [Case; 5] = [
        (&["5"], of_unknown_length),
        (&[LENGTH, LENGTH], of_unknown_length),
        (&["5", LENGTH], of_unknown_length),
        (&["+47"], of_unknown_length),
        (&["5"], || Body::from(BODY)),
    ];
    for (lengths, body) in cases {
        let (runs, [first, repeat, other]) = three(lengths, body).await;
        for answer in [&first, &repeat] {
            assert_eq!(answer.status, "HTTP/1.1 200 OK", "{lengths:?}");
            assert_eq!(answer.body, BODY, "{lengths:?}");
            assert!(!answer.headers.contains_key("idempotent-replayed"));
        }
        assert_eq!(other.body, "balance", "{lengths:?}");
        assert_eq!(runs, 2, "{lengths:?}: nothing is recorded");
    }
}

/// A client that reads the whole connection sees that the response is not whole.
#[tokio::test]
async fn a_response_that_is_cut_short_is_not_recorded_and_does_not_look_whole() {
    for body in [of_unknown_length as fn() -> Body, || Body::from(BODY)] {
        let (_store, _locks, layer) = remembering();
        let runs = Runs::default();
        let counted = runs.clone();
        let pay = move || {
            counted.add();
            let response = Response::builder().header("content-length", "100");
            let response = response.body(body()).unwrap();
            async move { response }
        };
        let app = Router::new().route("/payments", post(pay).route_layer(layer));
        for _ in 0..2 {
            let mut stream = TcpStream::connect(serve(app.clone()).await).await.unwrap();
            stream.write_all(PAY.as_bytes()).await.unwrap();
            let mut read = String::new();
            // The server ends the connection without an end of the response.
            let end = stream.read_to_string(&mut read);
            let end = tokio::time::timeout(Duration::from_secs(10), end).await;
            assert!(end.is_ok(), "it looks whole: {read}");
            // It may be over before its head is sent.
            let (head, body) = read.split_once("\r\n\r\n").unwrap_or_default();
            assert!(
                head.is_empty() || head.contains("content-length: 100"),
                "{head}"
            );
            assert!(!head.contains("idempotent-replayed"), "{head}");
            assert!(body.len() < 100, "{body}");
        }
        assert_eq!(runs.count(), 2, "nothing is recorded");
    }
}

#[tokio::test]
async fn a_true_content_length_is_recorded_and_sent_again() {
    for body in [of_unknown_length as fn() -> Body, || Body::from(BODY)] {
        let (runs, [first, repeat, other]) = three(&[LENGTH], body).await;
        for answer in [&first, &repeat] {
            assert_eq!(answer.headers["content-length"], LENGTH);
            assert_eq!(answer.body, BODY);
        }
        assert_eq!(repeat.headers["idempotent-replayed"], "true");
        assert_eq!(other.body, "balance");
        assert_eq!(runs, 1);
    }
}

/// A response without a body may declare the length that the body of another response would have (RFC 9110,
/// 8.6).
#[tokio::test(start_paused = true)]
async fn a_length_that_stands_for_another_response_is_recorded() {
    let (_store, _locks, layer) = remembering();
    let app = super::answering(|| async {
        let response = Response::builder()
            .status(304)
            .header("content-length", "100");
        response.body(Body::empty()).unwrap()
    });
    let app = app.layer(layer);
    for replayed in [false, true] {
        let answer = super::pay(&app).await;
        assert_eq!(answer.status(), 304);
        assert_eq!(answer.headers()["content-length"], "100");
        assert_eq!(super::is_replay(&answer), replayed);
    }
}

//! The signatures of Standard Webhooks (https://www.standardwebhooks.com): `v1,` and the HMAC-SHA256 of
//! `<id>.<timestamp>.<body>` in base64, one or several of them, in a header.

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine};
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::LengthLimitError;
use serde_json::json;
use sha2::Sha256;

use crate::webhooks::LIMIT;

/// The largest difference (seconds) between a webhook's time and ours, so that old webhooks cannot be
/// replayed.
const TOLERANCE: u64 = 5 * 60;

/// The fewest bytes of a secret: a shorter one may be found by trying, from one signature.
const SHORTEST: usize = 24;

/// The sender's secret.
#[derive(Clone)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    /// Parses `whsec_` and base64, as providers show it, or any other text unchanged.
    pub(crate) fn parse(secret: &str) -> anyhow::Result<Self> {
        let secret = match secret.strip_prefix("whsec_") {
            Some(encoded) => BASE64_STANDARD.decode(encoded).context("after whsec_")?,
            None => secret.as_bytes().to_vec(),
        };
        ensure!(
            secret.len() >= SHORTEST,
            "it has {} bytes: {SHORTEST} are the least that cannot be guessed",
            secret.len()
        );
        Ok(Self(secret))
    }

    /// Whether one of the signatures is valid. The time does not depend on the signatures.
    fn signed(&self, id: &str, timestamp: &str, body: &[u8], signatures: &str) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        signatures
            .split(' ')
            .filter_map(|signature| BASE64_STANDARD.decode(signature.strip_prefix("v1,")?).ok())
            .any(|signature| mac.clone().verify_slice(&signature).is_ok())
    }
}

/// Lets webhooks pass that were signed with the secret recently.
pub(crate) async fn check(
    State(secret): State<Option<Secret>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(secret) = secret else {
        return refuse(
            StatusCode::NOT_IMPLEMENTED,
            "this server has no WEBHOOK_SECRET",
        );
    };
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, LIMIT).await {
        Ok(body) => body,
        Err(error)
            if error
                .source()
                .is_some_and(|cause| cause.is::<LengthLimitError>()) =>
        {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the webhook is too long");
        }
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "the webhook broke off"),
    };
    match verify(&secret, &parts.headers, &body) {
        Ok(()) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Err(error) => refuse(StatusCode::UNAUTHORIZED, error),
    }
}

fn verify(secret: &Secret, headers: &HeaderMap, body: &[u8]) -> Result<(), &'static str> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let id = header("webhook-id").ok_or("webhook-id is missing")?;
    let timestamp = header("webhook-timestamp").ok_or("webhook-timestamp is missing")?;
    let signatures = header("webhook-signature").ok_or("webhook-signature is missing")?;
    let sent: u64 = timestamp
        .parse()
        .map_err(|_| "webhook-timestamp is no time in seconds")?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    if now.abs_diff(sent) > TOLERANCE {
        return Err("the webhook is too old, or from the future");
    }
    match secret.signed(id, timestamp, body, signatures) {
        true => Ok(()),
        false => Err("the signature is not that of this webhook"),
    }
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

//! The record of a request that was served, and its layout in the store.

use bytes::Bytes;
use http::header::{CONNECTION, SET_COOKIE};
use http::{HeaderName, HeaderValue, Response, StatusCode, response};

use super::fingerprint::Fingerprint;

/// The first bytes of every record. The next byte is the version.
const MAGIC: &[u8] = b"tdl-idem";

/// The version of the layout, and of what the fingerprint covers.
const VERSION: u8 = 3;

/// Marks the answer to a repeat.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The record of the response with this head and body to the request with this fingerprint. Header lines that belong to one connection
/// or to one answer are left out, and without `cookies` also those that set a cookie.
///
/// The layout: magic, version, fingerprint, length of the body (8 bytes, big-endian), status (2 bytes), header lines
/// (`name:value`, each with a line feed), an empty line, and the body.
pub(super) fn encode(
    fingerprint: Fingerprint,
    parts: &response::Parts,
    body: &[u8],
    cookies: bool,
) -> Bytes {
    let mut record = [MAGIC, &[VERSION], &fingerprint.0].concat();
    record.extend_from_slice(&(body.len() as u64).to_be_bytes());
    record.extend_from_slice(&parts.status.as_u16().to_be_bytes());
    let named = parts.headers.get_all(CONNECTION).iter();
    let named = named.filter_map(|line| line.to_str().ok());
    let named: Vec<_> = named.flat_map(|line| line.split(',')).collect();
    let is_named = |name: &str| named.iter().any(|it| it.trim().eq_ignore_ascii_case(name));
    for (name, value) in &parts.headers {
        if is_of_one_answer(name) || is_named(name.as_str()) || *name == SET_COOKIE && !cookies {
            continue;
        }
        // A value has no line feed.
        for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
            record.extend_from_slice(part);
        }
    }
    record.push(b'\n');
    record.extend_from_slice(body);
    record.into()
}

/// The answer to a repeat, and the fingerprint of the first request.
///
/// # Errors
///
/// Why the layer cannot read the record.
pub(super) fn decode(record: &Bytes) -> Result<(Fingerprint, Response<Bytes>), &'static str> {
    let rest = record.strip_prefix(MAGIC);
    match rest.ok_or("it is not a record of `IdempotencyLayer`")? {
        [VERSION, rest @ ..] => read(record, rest).ok_or("it is damaged"),
        [_, ..] => Err("another version of `IdempotencyLayer` has written it"),
        [] => Err("it is damaged"),
    }
}

/// The record, of which `rest` follows the version; `None`: it is damaged.
fn read(record: &Bytes, rest: &[u8]) -> Option<(Fingerprint, Response<Bytes>)> {
    let (fingerprint, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (status, mut rest) = rest.split_first_chunk()?;
    let mut replay = Response::new(Bytes::new());
    *replay.status_mut() = StatusCode::from_u16(u16::from_be_bytes(*status)).ok()?;
    let headers = replay.headers_mut();
    let body = loop {
        let (line, after) = split_once(rest, b'\n')?;
        rest = after;
        if line.is_empty() {
            break rest;
        }
        let (name, value) = split_once(line, b':')?;
        let name = HeaderName::from_bytes(name).ok()?;
        let value = HeaderValue::from_bytes(value).ok()?;
        headers.try_append(name, value).ok()?;
    };
    let replayed = HeaderValue::from_static("true");
    headers.try_insert(REPLAYED, replayed).ok()?;
    *replay.body_mut() = record.slice_ref(body);
    let is_whole = u64::from_be_bytes(*length) == body.len() as u64;
    is_whole.then_some((Fingerprint(*fingerprint), replay))
}

/// Whether a header belongs to one connection, moment, trace or caller, so that a repeat must not get it.
fn is_of_one_answer(name: &HeaderName) -> bool {
    let name = name.as_str();
    let begins = ["access-control-", "ratelimit", "x-b3-", "x-ratelimit-"];
    let ends = ["correlation-id", "request-id", "requestid", "trace-id"];
    begins.iter().any(|begin| name.starts_with(begin))
        || ends.iter().any(|end| name.ends_with(end))
        || matches!(
            name,
            "age"
                | "b3"
                | "cf-ray"
                | "connection"
                | "date"
                | "keep-alive"
                | "proxy-authenticate"
                | "proxy-connection"
                | "retry-after"
                | "sentry-trace"
                | "server-timing"
                | "te"
                | "traceparent"
                | "traceresponse"
                | "tracestate"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
                | "via"
                | "x-cloud-trace-context"
        )
}

/// What is before and after the first `separator`.
fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests;

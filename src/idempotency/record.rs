//! The record of a request that was served, and its layout in the store.

use bytes::Bytes;
use http::header::{CONNECTION, DATE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};

use super::fingerprint::Fingerprint;

/// The first bytes of every record. The next byte is the version.
const MAGIC: &[u8] = b"tdl-idem";

/// The version of the layout, and of what the fingerprint covers.
const VERSION: u8 = 3;

/// Marks the answer to a repeat.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A response, and the request that it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) fingerprint: Fingerprint,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why the layer cannot read a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is not a record of `IdempotencyLayer`")]
    Foreign,
    #[error("its format has version {0}, which this version of the layer does not know")]
    Version(u8),
    #[error("it is damaged")]
    Damaged,
}

impl Recorded {
    /// Records the response. Header lines that belong to one connection or to one answer are left out, and without `cookies` also
    /// those that set a cookie.
    pub(super) fn new(
        fingerprint: Fingerprint,
        parts: &response::Parts,
        body: Bytes,
        cookies: bool,
    ) -> Self {
        let mut headers = parts.headers.clone();
        let named = parts.headers.get_all(CONNECTION).iter();
        let named = named.filter_map(|line| line.to_str().ok());
        for name in named.flat_map(|line| line.split(',')) {
            headers.remove(name.trim());
        }
        for name in parts.headers.keys() {
            if is_of_one_answer(name) || *name == SET_COOKIE && !cookies {
                headers.remove(name);
            }
        }
        Self {
            fingerprint,
            status: parts.status,
            headers,
            body,
        }
    }

    /// The layout: magic, version, fingerprint, length of the body (8 bytes, big-endian), status (2 bytes), header lines
    /// (`name:value`, each with a line feed), an empty line, and the body.
    pub(super) fn encode(&self) -> Bytes {
        let mut record = [MAGIC, &[VERSION], &self.fingerprint.0].concat();
        record.extend_from_slice(&(self.body.len() as u64).to_be_bytes());
        record.extend_from_slice(&self.status.as_u16().to_be_bytes());
        for (name, value) in &self.headers {
            // A value has no line feed.
            for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
                record.extend_from_slice(part);
            }
        }
        record.push(b'\n');
        record.extend_from_slice(&self.body);
        record.into()
    }

    pub(super) fn decode(record: &Bytes) -> Result<Self, Unreadable> {
        let rest = record.strip_prefix(MAGIC).ok_or(Unreadable::Foreign)?;
        match rest {
            [VERSION, rest @ ..] => Self::read(record, rest).ok_or(Unreadable::Damaged),
            [version, ..] => Err(Unreadable::Version(*version)),
            [] => Err(Unreadable::Damaged),
        }
    }

    /// The record, of which `rest` follows the version; `None`: it is damaged.
    fn read(record: &Bytes, rest: &[u8]) -> Option<Self> {
        let (fingerprint, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (status, mut rest) = rest.split_first_chunk()?;
        let mut headers = HeaderMap::new();
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
        let is_whole = u64::from_be_bytes(*length) == body.len() as u64;
        is_whole.then_some(Self {
            fingerprint: Fingerprint(*fingerprint),
            status: StatusCode::from_u16(u16::from_be_bytes(*status)).ok()?,
            headers,
            body: record.slice_ref(body),
        })
    }

    /// The recorded response.
    pub(super) fn replay(self) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, replayed);
        response
    }
}

/// Whether a header belongs to one connection, moment, trace or caller, so that a repeat must not get it.
fn is_of_one_answer(name: &HeaderName) -> bool {
    [CONNECTION, DATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || name.as_str().starts_with("access-control-")
        || matches!(
            name.as_str(),
            "keep-alive"
                | "proxy-connection"
                | "request-id"
                | "server-timing"
                | "traceparent"
                | "traceresponse"
                | "tracestate"
                | "x-amzn-trace-id"
                | "x-correlation-id"
                | "x-request-id"
        )
}

/// What is before and after the first `separator`.
fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests;

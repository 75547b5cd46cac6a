//! The record of a request that was served, and its layout in the store.

use bytes::Bytes;
use http::header::{CONNECTION, DATE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use serde::{Deserialize, Serialize};

use super::identity::Fingerprint;

/// The first bytes of every record. The next byte is the version.
const MAGIC: &[u8] = b"tdl-idem";

/// The version of the layout, and of what the fingerprint covers.
const VERSION: u8 = 2;

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

/// The head of a record after the version byte, in postcard's wire format. The body follows it unchanged.
#[derive(Serialize, Deserialize)]
struct RecordHead<'a> {
    fingerprint: [u8; 32],
    status: u16,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a [u8])>,
    body_length: u64,
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
    /// Records the response. Header lines that belong to one connection or moment are left out, and without `cookies` also
    /// those that set a cookie.
    pub(super) fn new(
        fingerprint: Fingerprint,
        parts: &response::Parts,
        body: Bytes,
        cookies: bool,
    ) -> Self {
        let mut headers = parts.headers.clone();
        let named = headers.get_all(CONNECTION).iter();
        let named: Vec<HeaderName> = named
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        let hop_by_hop = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
        let keep_alive = ["keep-alive", "proxy-connection"].map(HeaderName::from_static);
        for name in named.iter().chain(&hop_by_hop).chain(&keep_alive) {
            headers.remove(name);
        }
        headers.remove(DATE);
        if !cookies {
            headers.remove(SET_COOKIE);
        }
        Self {
            fingerprint,
            status: parts.status,
            headers,
            body,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let headers = self.headers.iter();
        let head = RecordHead {
            fingerprint: self.fingerprint.0,
            status: self.status.as_u16(),
            headers: headers
                .map(|(name, value)| (name.as_str(), value.as_bytes()))
                .collect(),
            body_length: self.body.len() as u64,
        };
        let start = [MAGIC, &[VERSION]].concat();
        let mut record = postcard::to_extend(&head, start)
            .expect("numbers and slices of known length can always be written");
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
        let (head, body): (RecordHead<'_>, _) = postcard::take_from_bytes(rest).ok()?;
        let mut headers = HeaderMap::try_with_capacity(head.headers.len()).ok()?;
        for (name, value) in head.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value = HeaderValue::from_bytes(value).ok()?;
            headers.try_append(name, value).ok()?;
        }
        let is_whole = head.body_length == body.len() as u64;
        is_whole.then_some(Self {
            fingerprint: Fingerprint(head.fingerprint),
            status: StatusCode::from_u16(head.status).ok()?,
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

#[cfg(test)]
mod tests;

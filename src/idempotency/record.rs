//! What is remembered of a request that was served.

use bytes::Bytes;
use http::header::{CONNECTION, DATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;

/// Every record begins with this, and the version of what follows.
const MAGIC: &[u8] = b"tdl-idem";
const VERSION: u8 = 1;

/// Tells a repeat's answer from the first one.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A response, and the request that it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) fingerprint: Fingerprint,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A record in version 1: magic, version, this in postcard's wire format, and then the body as it is.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    fingerprint: Fingerprint,
    status: u16,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a [u8])>,
    body_length: u64,
}

/// Why a record is not one that this version of the layer has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is not a record of `IdempotencyLayer`")]
    Foreign,
    #[error("its format has version {0}, and this is version {VERSION}")]
    Version(u8),
    #[error("it is damaged")]
    Damaged,
}

impl Recorded {
    /// Takes what may be replayed: all header lines but those that belong to one connection or moment.
    pub(super) fn new(fingerprint: Fingerprint, parts: &response::Parts, body: Bytes) -> Self {
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
        Self {
            fingerprint,
            status: parts.status,
            headers,
            body,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let headers = self.headers.iter();
        let head = Head {
            fingerprint: self.fingerprint,
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
        let rest = match rest {
            [VERSION, rest @ ..] => rest,
            [version, ..] => return Err(Unreadable::Version(*version)),
            [] => return Err(Unreadable::Damaged),
        };
        let (head, body): (Head<'_>, _) =
            postcard::take_from_bytes(rest).map_err(|_| Unreadable::Damaged)?;
        if head.body_length != body.len() as u64 {
            return Err(Unreadable::Damaged);
        }
        let status = StatusCode::from_u16(head.status).map_err(|_| Unreadable::Damaged)?;
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        for (name, value) in head.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Unreadable::Damaged)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| Unreadable::Damaged)?;
            headers.append(name, value);
        }
        Ok(Self {
            fingerprint: head.fingerprint,
            status,
            headers,
            body: record.slice_ref(body),
        })
    }

    /// The response once more.
    pub(super) fn replay(self) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn recorded() -> Recorded {
        let (request, ()) = Request::post("/transfers").body(()).unwrap().into_parts();
        let response = Response::builder()
            .status(201)
            .header("set-cookie", "a=1")
            .header("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap())
            .header("set-cookie", "b=2")
            .header("connection", "close, x-hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("date", "Thu, 01 Jan 1970 00:00:00 GMT");
        let (response, ()) = response.body(()).unwrap().into_parts();
        Recorded::new(
            Fingerprint::of(&request, b"{}"),
            &response,
            Bytes::from_static(b"\0done"),
        )
    }

    #[test]
    fn a_record_gives_back_what_was_put_in_except_what_belongs_to_one_connection() {
        let decoded = Recorded::decode(&recorded().encode()).unwrap();
        assert_eq!(decoded, recorded());
        let response = decoded.replay();
        assert_eq!(response.status(), 201);
        let mut lines: Vec<_> = response.headers().iter().collect();
        lines.sort_by_key(|(name, _)| name.as_str());
        let lines: Vec<_> = lines
            .into_iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 4] = [
            ("idempotent-replayed", b"true"),
            ("set-cookie", b"a=1"),
            ("set-cookie", b"b=2"),
            ("x-bytes", b"\xff\xfe"),
        ];
        assert_eq!(lines, expected);
        assert_eq!(*response.body(), "\0done");
    }

    #[test]
    fn whatever_is_cut_off_or_added_is_noticed() {
        let whole = recorded().encode();
        for length in 0..whole.len() {
            assert!(
                Recorded::decode(&whole.slice(..length)).is_err(),
                "{length}"
            );
        }
        let longer = Bytes::from([&whole[..], b"!"].concat());
        assert_eq!(Recorded::decode(&longer), Err(Unreadable::Damaged));
    }

    #[test]
    fn no_byte_that_is_changed_makes_it_panic() {
        let whole = recorded().encode();
        for index in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.to_vec();
                changed[index] = value;
                let _ = Recorded::decode(&changed.into());
            }
        }
    }

    #[test]
    fn strangers_and_the_future_are_told_apart() {
        let foreign = Bytes::from_static(b"{\"status\":200}");
        assert_eq!(Recorded::decode(&foreign), Err(Unreadable::Foreign));
        let newer = Bytes::from([MAGIC, &[2], b"?"].concat());
        assert_eq!(Recorded::decode(&newer), Err(Unreadable::Version(2)));
    }

    /// Another layout needs another version: processes of both may share a Redis.
    #[test]
    fn the_layout_of_version_1_stands() {
        let record = Recorded {
            fingerprint: Fingerprint::of(&Request::new(()).into_parts().0, b""),
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(DATE, HeaderValue::from_static("x"))]),
            body: Bytes::from_static(b"ab"),
        };
        let encoded = record.encode();
        assert_eq!(encoded[..9], *b"tdl-idem\x01");
        assert_eq!(encoded[9 + 32..], *b"\xc8\x01\x01\x04date\x01x\x02ab");
    }
}

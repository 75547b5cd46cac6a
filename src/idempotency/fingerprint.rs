//! What makes two requests with one key repeats of each other.

use http::HeaderName;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::uri::Authority;
use sha2::{Digest, Sha256};

use crate::key::{original_path, original_query};

/// A digest of a request. Two requests with one fingerprint are repeats of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

impl Fingerprint {
    /// The default fingerprint: method, host, path, query, content type, content encoding and body.
    ///
    /// A client's library draws a new boundary for each attempt to send a form, so the boundary does not count.
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        update(&mut digest, parts.method.as_str().as_bytes());
        update(&mut digest, host(parts).as_bytes());
        update(&mut digest, original_path(parts).as_bytes());
        update(&mut digest, original_query(parts).as_bytes());
        update_lines(&mut digest, parts, CONTENT_ENCODING);
        match Multipart::of(parts) {
            Some(multipart) => {
                digest.update([1]);
                update(&mut digest, multipart.content_type.as_bytes());
                multipart.pieces(body, |piece| update(&mut digest, piece));
            }
            None => {
                digest.update([0]);
                update_lines(&mut digest, parts, CONTENT_TYPE);
                update(&mut digest, body);
            }
        }
        Self(digest.finalize().into())
    }

    /// The fingerprint that a function of the program computes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Adds a part with its length, so that the boundary between two parts counts.
fn update(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_be_bytes());
    digest.update(part);
}

fn update_lines(digest: &mut Sha256, parts: &Parts, name: HeaderName) {
    let lines = parts.headers.get_all(name);
    digest.update((lines.iter().count() as u64).to_be_bytes());
    for line in lines {
        update(digest, line.as_bytes());
    }
}

/// The host in lower case, without a port: servers behind one name may listen on several. HTTP/2 has it in the request's target, HTTP/1
/// in a header.
fn host(parts: &Parts) -> String {
    let header = || parts.headers.get(HOST)?.to_str().ok()?.parse().ok();
    let authority: Option<Authority> = parts.uri.authority().cloned().or_else(header);
    authority.map_or_else(String::new, |authority| {
        authority.host().to_ascii_lowercase()
    })
}

/// A body in parts that a boundary separates (RFC 2046, 5.1).
struct Multipart {
    /// The content type without the boundary.
    content_type: String,
    /// What separates two parts.
    delimiter: Vec<u8>,
}

impl Multipart {
    /// `None`: the content type is another one, or does not name exactly one boundary.
    fn of(parts: &Parts) -> Option<Self> {
        const BOUNDARY: &str = "boundary=";
        let mut lines = parts.headers.get_all(CONTENT_TYPE).iter();
        let content_type = lines.next()?.to_str().ok()?;
        let lower = content_type.to_ascii_lowercase();
        let (at, _) = lower.match_indices(BOUNDARY).next()?;
        let is_only = lines.next().is_none() && lower.matches(BOUNDARY).count() == 1;
        if !is_only || !lower.starts_with("multipart/") {
            return None;
        }
        let value = &content_type[at + BOUNDARY.len()..];
        let (boundary, rest) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        let boundary = boundary.trim_end();
        (!boundary.is_empty()).then(|| Self {
            content_type: format!("{}{rest}", &content_type[..at]),
            delimiter: format!("\r\n--{boundary}").into(),
        })
    }

    /// Calls `seen` with everything between two delimiters. They tell the body, but for the boundary.
    fn pieces(&self, body: &[u8], mut seen: impl FnMut(&[u8])) {
        let delimiter = &self.delimiter[..];
        let mut rest = body;
        // The first delimiter needs no line before it.
        if let Some(after) = rest.strip_prefix(&delimiter[2..]) {
            seen(b"");
            rest = after;
        }
        let starts = |rest: &[u8]| {
            let mut windows = rest.windows(delimiter.len());
            windows.position(|window| window[0] == b'\r' && window == delimiter)
        };
        while let Some(at) = starts(rest) {
            seen(&rest[..at]);
            rest = &rest[at + delimiter.len()..];
        }
        seen(rest);
    }
}

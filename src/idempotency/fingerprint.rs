//! Fingerprints, by which repeats of a request are recognised.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use sha2::{Digest, Sha256};

use crate::key::{original_path, original_query};

/// A digest of a request. Two requests with one fingerprint are repeats of each other. Fingerprints of
/// different versions are never equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) version: Version,
    pub(super) digest: [u8; 32],
}

/// Which parts of a request its fingerprint covers. The version of a record is that of its fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Method, path and body. Records of earlier versions of this crate have it.
    One = 1,
    /// Method, path, query, content type and body, or what the program's own function returns.
    Two = 2,
}

impl Fingerprint {
    /// The fingerprint of version 1.
    pub(super) fn version_1(parts: &Parts, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for part in [parts.method.as_str(), &original_path(parts)] {
            update(&mut digest, part.as_bytes());
        }
        digest.update(body);
        Self {
            version: Version::One,
            digest: digest.finalize().into(),
        }
    }

    /// The default fingerprint: method, path, query, content type and body.
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        update(&mut digest, parts.method.as_str().as_bytes());
        update(&mut digest, original_path(parts).as_bytes());
        update(&mut digest, original_query(parts).as_bytes());
        let content_types = parts.headers.get_all(CONTENT_TYPE);
        digest.update((content_types.iter().count() as u64).to_be_bytes());
        for line in content_types {
            update(&mut digest, line.as_bytes());
        }
        digest.update(body);
        Self::version_2(digest)
    }

    /// The fingerprint that a function of the program computes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self::version_2(Sha256::new_with_prefix(bytes))
    }

    fn version_2(digest: Sha256) -> Self {
        Self {
            version: Version::Two,
            digest: digest.finalize().into(),
        }
    }
}

/// Adds a part with its length, so that the boundary between two parts counts.
fn update(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_be_bytes());
    digest.update(part);
}

use http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::key::original_path;

/// What makes two requests the same: method, path and body. Not the query, and no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for part in [parts.method.as_str(), &original_path(parts)] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.update(body);
        Self(digest.finalize().into())
    }
}

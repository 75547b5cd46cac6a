//! Turns a response into its record.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Response, response};
use http_body::Body;

use super::collect::{Collected, Length, collect};
use super::fingerprint::Fingerprint;
use super::record::Recorded;
use super::settings::IdempotencySettings;
use crate::error::BoxError;
use crate::layer::{ResponseBody, whole};
use crate::limits;
use crate::store::Record;

impl IdempotencySettings {
    /// Reads a final response, and makes its record. `None`: the response is sent unrecorded.
    pub(super) async fn record_response<R>(
        &self,
        response: Response<R>,
        fingerprint: Fingerprint,
    ) -> (Response<ResponseBody<R>>, Option<Record>)
    where
        R: Body<Error: Into<BoxError>> + Send + 'static,
    {
        let (mut parts, body) = response.into_parts();
        if !self.is_final(&parts) {
            return (unread(parts, body), None);
        }
        let length = match Length::of(&parts, &body) {
            Length::Known(length) if length <= self.response_limit as u64 => length as usize,
            Length::Known(length) => {
                self.warn(&parts, Some(length), "it is too long");
                return (unread(parts, body), None);
            }
            Length::Unknown => {
                self.warn(&parts, None, "it is a stream");
                return (unread(parts, body), None);
            }
            Length::Contradictory => {
                self.warn(
                    &parts,
                    None,
                    "its `Content-Length` is not the length of its body",
                );
                parts.headers.remove(CONTENT_LENGTH);
                return (unread(parts, body), None);
            }
        };
        match collect(body, length).await {
            Collected::Whole(body) => {
                let record = self.record(&parts, body.clone(), fingerprint);
                (
                    Response::from_parts(parts, ResponseBody::local(whole(body))),
                    Some(record),
                )
            }
            Collected::Part(body) => {
                self.warn(&parts, Some(length as u64), "it did not end at its length");
                // A wrong length would split the response in two.
                parts.headers.remove(CONTENT_LENGTH);
                (Response::from_parts(parts, ResponseBody::local(body)), None)
            }
        }
    }

    fn record(&self, parts: &response::Parts, body: Bytes, fingerprint: Fingerprint) -> Record {
        let recorded = Recorded::new(fingerprint, parts, body, self.record_cookies);
        Record {
            value: recorded.encode(),
            retention: self.retention.min(limits::FOR_EVER),
        }
    }

    /// Logs a warning once a minute, and a debug line each time, that a response is not recorded.
    fn warn(&self, parts: &response::Parts, length: Option<u64>, reason: &'static str) {
        let status = parts.status.as_u16();
        let limit = self.response_limit;
        match self.warned.due() {
            Some(left_out) => tracing::warn!(
                reason,
                status,
                length,
                limit,
                left_out,
                "a response is not recorded: a repeat of its request runs again"
            ),
            None => tracing::debug!(reason, status, length, limit, "a response is not recorded"),
        }
    }
}

/// The handler's response, unchanged.
fn unread<R>(parts: response::Parts, body: R) -> Response<ResponseBody<R>> {
    Response::from_parts(parts, ResponseBody::handlers(body))
}

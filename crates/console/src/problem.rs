//! The error answers of the API.

use std::error::Error;
use std::iter::successors;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use tower_distributed_lock::error::LockError;

/// A problem in the format of RFC 9457.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        let status = match &error {
            LockError::Conflict(_) => StatusCode::CONFLICT,
            LockError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            LockError::Invalid(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, text(&error))
    }
}

impl From<QueryRejection> for Problem {
    /// Says which parameter is wrong, and which values it has.
    fn from(rejection: QueryRejection) -> Self {
        let cause = rejection.source().map(ToString::to_string);
        Self::bad_request(cause.unwrap_or_else(|| rejection.to_string()))
    }
}

/// An error with its causes.
pub(crate) fn text(error: &LockError) -> String {
    let causes = successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Json(json!({
            "title": self.status.canonical_reason().unwrap_or("error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        }));
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.status, kind, body).into_response()
    }
}

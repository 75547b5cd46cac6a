//! The key of a request, and its body, which is read where the key is in it.

use bytes::Bytes;
use http::request::Parts;

use super::body_mode::BodyMode;
use super::body_reader::BodyReader;
use super::rejection::Rejection;
use crate::key::{AnyKey, KeyError, Keys, RequestBody};

/// A request's body, and its bytes, once they are read.
pub(crate) struct Payload<B> {
    pub(crate) body: B,
    read: Option<Bytes>,
}

impl<B: Send> Payload<B> {
    /// The body as the mode takes it, and its bytes if the mode reads it.
    pub(crate) async fn take<M: BodyMode<B>>(
        self,
        reader: &BodyReader,
    ) -> Result<(B, Option<Bytes>), Rejection> {
        match self.read {
            None => M::take(reader, self.body).await.map_err(Rejection::new),
            read => Ok((self.body, read)),
        }
    }
}

/// The keys, or why there are none. Reads the body if the keys are in it.
pub(crate) async fn extract<M: BodyMode<B>, B: Send>(
    key: &AnyKey,
    reader: &BodyReader,
    parts: &mut Parts,
    body: B,
) -> Result<(Result<Keys, KeyError>, Payload<B>), Rejection> {
    let mut found = key.extract(parts).await;
    if !found.as_ref().is_err_and(KeyError::is_body_unread) {
        return Ok((found, Payload { body, read: None }));
    }
    let (body, read) = M::take(reader, body).await.map_err(Rejection::new)?;
    if let Some(bytes) = &read {
        parts.extensions.insert(RequestBody(bytes.clone()));
        found = key.extract(parts).await;
        // A clone of the bytes occupies the budget, and a layer further in may read another body.
        parts.extensions.remove::<RequestBody>();
    }
    Ok((found, Payload { body, read }))
}

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::Either;
use http::request::Parts;

use super::{DefaultKey, KeyError, KeyExtractor, Keys};

type Found = Result<Keys, KeyError>;
type BoxFuture<'a> = Pin<Box<dyn Future<Output = Found> + Send + 'a>>;

/// The key extractor of a layer, whatever its type is. A layer has no type parameter for it.
#[derive(Clone)]
pub(crate) enum AnyKey {
    /// It needs no box for its future.
    Default(DefaultKey),
    Other(Arc<dyn DynKey>),
}

impl AnyKey {
    pub(crate) fn new(key: impl KeyExtractor) -> Self {
        Self::Other(Arc::new(key))
    }

    /// The keys of a request.
    pub(crate) fn extract<'a>(
        &'a self,
        parts: &'a mut Parts,
    ) -> Either<Ready<Found>, BoxFuture<'a>> {
        match self {
            Self::Default(key) => Either::Left(ready(key.of(parts))),
            Self::Other(key) => Either::Right(key.extract_boxed(parts)),
        }
    }
}

/// A [`KeyExtractor`] behind a pointer.
pub(crate) trait DynKey: Send + Sync {
    fn extract_boxed<'a>(&'a self, parts: &'a mut Parts) -> BoxFuture<'a>;
}

impl<K: KeyExtractor> DynKey for K {
    fn extract_boxed<'a>(&'a self, parts: &'a mut Parts) -> BoxFuture<'a> {
        Box::pin(self.extract(parts))
    }
}

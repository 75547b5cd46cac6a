//! Where documents, accounts and counts live, as JSON under a name each. Nothing here protects them: that is what the locks
//! are for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use deadpool_redis::redis::AsyncCommands;
use deadpool_redis::{Config, Pool, Runtime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[derive(Clone)]
pub(crate) enum Store {
    Memory(Arc<Mutex<HashMap<String, String>>>),
    Redis(Pool),
}

impl Store {
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) fn in_redis(url: &str) -> anyhow::Result<Self> {
        let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1))?;
        Ok(Self::Redis(pool))
    }

    pub(crate) async fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let json = match self {
            Self::Memory(map) => lock(map).get(name).cloned(),
            Self::Redis(redis) => redis.get().await?.get(name).await?,
        };
        Ok(json.as_deref().map(serde_json::from_str).transpose()?)
    }

    pub(crate) async fn write(&self, name: String, value: &impl Serialize) -> Result<(), Failure> {
        self.write_all([(name, value)]).await
    }

    /// Writes all of them or, should the server die meanwhile, none.
    pub(crate) async fn write_all<T: Serialize, const N: usize>(
        &self,
        entries: [(String, &T); N],
    ) -> Result<(), Failure> {
        let mut named = Vec::with_capacity(N);
        for (name, value) in entries {
            named.push((name, serde_json::to_string(value)?));
        }
        match self {
            Self::Memory(map) => lock(map).extend(named),
            Self::Redis(redis) => redis.get().await?.mset::<_, _, ()>(&named).await?,
        }
        Ok(())
    }

    pub(crate) async fn remove(&self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Memory(map) => drop(lock(map).remove(name)),
            Self::Redis(redis) => redis.get().await?.del::<_, ()>(name).await?,
        }
        Ok(())
    }
}

fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The store could not be reached, or holds something else than was written there.
pub(crate) struct Failure(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        tracing::error!(error = %self.0, "the store did not serve");
        let error = json!({ "error": "the store cannot be reached" });
        let later = [(RETRY_AFTER, "1")];
        (StatusCode::SERVICE_UNAVAILABLE, later, Json(error)).into_response()
    }
}

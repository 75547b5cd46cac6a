//! Where the documents live. Nothing here protects them: that is what the lock is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use deadpool_redis::redis::AsyncCommands;
use deadpool_redis::{Config, Pool, Runtime};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) version: u64,
    pub(crate) content: String,
}

#[derive(Clone)]
pub(crate) enum Documents {
    Memory(Arc<Mutex<HashMap<String, Document>>>),
    Redis(Pool),
}

impl Documents {
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) fn in_redis(url: &str) -> anyhow::Result<Self> {
        let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1))?;
        Ok(Self::Redis(pool))
    }

    pub(crate) async fn read(&self, id: &str) -> anyhow::Result<Option<Document>> {
        match self {
            Self::Memory(map) => Ok(map
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(id)
                .cloned()),
            Self::Redis(redis) => {
                let json: Option<String> = redis.get().await?.get(name(id)).await?;
                Ok(json.as_deref().map(serde_json::from_str).transpose()?)
            }
        }
    }

    pub(crate) async fn write(&self, id: &str, document: &Document) -> anyhow::Result<()> {
        match self {
            Self::Memory(map) => {
                map.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(id.to_owned(), document.clone());
            }
            Self::Redis(redis) => {
                let json = serde_json::to_string(document)?;
                redis.get().await?.set::<_, _, ()>(name(id), json).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn remove(&self, id: &str) -> anyhow::Result<()> {
        match self {
            Self::Memory(map) => {
                map.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(id);
            }
            Self::Redis(redis) => redis.get().await?.del::<_, ()>(name(id)).await?,
        }
        Ok(())
    }
}

fn name(id: &str) -> String {
    format!("documents:{id}")
}

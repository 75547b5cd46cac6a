//! Where the documents live. Nothing here protects them: that is what the lock is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use redis::AsyncCommands;
use redis::aio::ConnectionManager;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub struct Document {
    pub version: u64,
    pub content: String,
}

#[derive(Clone)]
pub enum Documents {
    Memory(Arc<Mutex<HashMap<String, Document>>>),
    Redis(ConnectionManager),
}

impl Documents {
    pub fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub async fn in_redis(url: &str) -> anyhow::Result<Self> {
        Ok(Self::Redis(
            redis::Client::open(url)?.get_connection_manager().await?,
        ))
    }

    pub async fn read(&self, id: &str) -> anyhow::Result<Option<Document>> {
        match self {
            Self::Memory(map) => Ok(map
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(id)
                .cloned()),
            Self::Redis(redis) => {
                let json: Option<String> = redis.clone().get(name(id)).await?;
                Ok(json.as_deref().map(serde_json::from_str).transpose()?)
            }
        }
    }

    pub async fn write(&self, id: &str, document: &Document) -> anyhow::Result<()> {
        match self {
            Self::Memory(map) => {
                map.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(id.to_owned(), document.clone());
            }
            Self::Redis(redis) => {
                let json = serde_json::to_string(document)?;
                redis.clone().set::<_, _, ()>(name(id), json).await?;
            }
        }
        Ok(())
    }

    pub async fn remove(&self, id: &str) -> anyhow::Result<()> {
        match self {
            Self::Memory(map) => {
                map.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(id);
            }
            Self::Redis(redis) => redis.clone().del::<_, ()>(name(id)).await?,
        }
        Ok(())
    }
}

fn name(id: &str) -> String {
    format!("documents:{id}")
}

//! Pools of connections to one server, and why there is none.

use deadpool_redis::{Manager, Pool, PoolConfig, PoolError, Runtime};
use redis::{ConnectionInfo, ErrorKind, RedisError};

use super::failure;
use super::timeouts::Timeouts;
use crate::error::{StoreError, StoreErrorKind};

/// How many commands may wait for a connection's task before their senders do.
const BACKLOG: usize = 1024;

pub(super) fn new_pool(
    address: ConnectionInfo,
    config: PoolConfig,
    timeouts: Timeouts,
) -> Result<Pool, StoreError> {
    let connection = timeouts.config().set_pipeline_buffer_size(BACKLOG);
    let manager = Manager::new_with_config(address, connection).map_err(bad_address)?;
    Pool::builder(manager)
        .config(config)
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))
}

pub(super) fn bad_address(error: RedisError) -> StoreError {
    if error.kind() == ErrorKind::InvalidClientConfig && error.to_string().contains("TLS") {
        return StoreError::new(
            StoreErrorKind::Refused,
            "a `rediss://` address needs the feature `redis-tls` of tower-distributed-lock",
        );
    }
    StoreError::new(StoreErrorKind::Refused, error)
}

pub(super) fn no_connection(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failure::no_connection(error),
        error => StoreError::new(StoreErrorKind::Unreachable, error),
    }
}

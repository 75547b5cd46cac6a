//! Without the feature `redis-tls`: nothing to set, and nobody to distrust. redis refuses the addresses.

use redis::{ConnectionInfo, RedisError};

use crate::error::StoreError;

#[derive(Debug, Clone, Default)]
pub(super) struct Tls {}

impl Tls {
    pub(super) fn secure(&self, address: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        Ok(address)
    }

    pub(super) fn secure_where_it_applies(
        &self,
        address: ConnectionInfo,
    ) -> Result<ConnectionInfo, StoreError> {
        Ok(address)
    }
}

pub(super) fn distrust(_: &RedisError) -> Option<StoreError> {
    None
}

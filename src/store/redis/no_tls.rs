//! Without the feature `redis-tls`: nothing to set, and nobody to distrust. redis refuses the addresses.

use std::fmt;

use redis::{ConnectionInfo, RedisError};

use super::timeouts::Timeouts;
use crate::error::StoreError;

#[derive(Debug, Clone, Default)]
pub(super) struct Tls {}

impl Tls {
    pub(super) fn secure(&self, address: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        Ok(address)
    }

    pub(super) fn suit<'a>(
        &self,
        _: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<(), StoreError> {
        Ok(())
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

pub(super) fn at(_: &dyn fmt::Display, error: StoreError) -> StoreError {
    error
}

pub(super) async fn objection(_: &ConnectionInfo, _: Timeouts, error: StoreError) -> StoreError {
    error
}

//! Without the feature `redis-tls`: no settings, and no connection is encrypted.

use std::fmt;
use std::io;

use redis::{ConnectionInfo, RedisError};
use tokio::net::TcpStream;

use crate::error::StoreError;

#[derive(Debug, Clone, Default)]
pub(super) struct Tls {}

impl Tls {
    pub(super) fn config<'a>(
        &self,
        _: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<TlsConfig, StoreError> {
        Ok(TlsConfig)
    }
}

#[derive(Clone)]
pub(super) struct TlsConfig;

impl TlsConfig {
    pub(super) async fn encrypt(&self, _: &str, _: TcpStream) -> io::Result<TcpStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(super) fn tls_refusal(_: &RedisError) -> Option<StoreError> {
    None
}

pub(super) fn at(_: &dyn fmt::Display, error: StoreError) -> StoreError {
    error
}

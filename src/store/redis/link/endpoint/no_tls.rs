//! Without the feature `redis-tls`: no settings, and no connection is encrypted.

use std::fmt;
use std::io;

use redis::{ConnectionInfo, RedisError};
use tokio::net::TcpStream;

use crate::error::StoreError;

pub(crate) use NoTls as Tls;
pub(crate) use NoTls as TlsConfig;

/// Stands for the settings of the builder, and for those of connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct NoTls(());

impl NoTls {
    pub(crate) fn config<'a>(
        &self,
        _: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<Self, StoreError> {
        Ok(Self(()))
    }

    pub(super) async fn encrypt(&self, _: &str, _: TcpStream) -> io::Result<TcpStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(super) fn tls_refusal(_: &RedisError, _: &dyn fmt::Display) -> Option<StoreError> {
    None
}

//! How a store gets access to a server: with which credentials, and at which address.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::{Cmd, RedisConnectionInfo};

use super::failure::transient;
use crate::error::{BoxError, StoreError};

/// The credentials of a Redis user; [`RedisStoreBuilder::credentials`](super::RedisStoreBuilder::credentials) asks for them.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// The password of the user named `user`.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            password: password.into(),
        }
    }

    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }

    pub(super) fn command(&self) -> Cmd {
        let mut auth = redis::cmd("AUTH");
        auth.arg(self.user.as_deref()).arg(&self.password);
        auth
    }

    /// The settings of a connection for which the `redis` crate authenticates.
    pub(super) fn added_to(&self, settings: RedisConnectionInfo) -> RedisConnectionInfo {
        let settings = match &self.user {
            Some(user) => settings.set_username(user),
            None => settings,
        };
        settings.set_password(&self.password)
    }
}

/// The password is left out.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Fetches the credentials for one connection.
type Provider = dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;

/// Where a server can be reached that others know by this host and port.
type AddressMap = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

/// What a program says about the access to its servers beside their addresses.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) provider: Option<Arc<Provider>>,
    pub(super) map: Option<Arc<AddressMap>>,
}

impl Access {
    /// The credentials of a new connection: those of the program, otherwise those of the address, if it has any.
    pub(super) async fn credentials(
        &self,
        settings: &RedisConnectionInfo,
    ) -> Result<Option<Credentials>, StoreError> {
        match &self.provider {
            // The source of the credentials may be down for a while.
            Some(provider) => provider().await.map(Some).map_err(transient),
            None => Ok(settings.password().map(|password| Credentials {
                user: settings.username().map(str::to_owned),
                password: password.to_owned(),
            })),
        }
    }

    /// Where the server can be reached that others know by this host and port.
    pub(super) fn reached_at(&self, host: &str, port: u16) -> (String, u16) {
        match &self.map {
            Some(map) => map(host, port),
            None => (host.to_owned(), port),
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("provider", &self.provider.is_some())
            .field("map", &self.map.is_some())
            .finish()
    }
}

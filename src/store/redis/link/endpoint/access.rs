//! How a store gets access to a server: with which credentials, and at which address.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::RedisConnectionInfo;

use crate::error::{BoxError, StoreError};
use crate::store::redis::link::address::Address;
use crate::store::redis::protocol::failure::transient;

/// The credentials of a Redis user; [`RedisStoreBuilder::credentials`](crate::store::redis::RedisStoreBuilder::credentials) asks for
/// them.
#[derive(Clone)]
pub struct Credentials(RedisConnectionInfo);

impl Credentials {
    /// The password of the user named `user`.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self(Self::password(password).0.set_username(user.into()))
    }

    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self(RedisConnectionInfo::default().set_password(password.into()))
    }
}

/// The password is left out.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.0.username())
            .finish_non_exhaustive()
    }
}

/// Fetches the credentials for one connection.
type Provider = dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;

/// Where a server can be reached that others know by this host and port.
type AddressMap = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

/// What a program says about the access to its servers beside their addresses.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) provider: Option<Arc<Provider>>,
    pub(crate) map: Option<Arc<AddressMap>>,
}

impl Access {
    /// The settings of the address; the user and the password are those of the program for a new connection, if it has any.
    pub(crate) async fn credentials(
        &self,
        address: &RedisConnectionInfo,
    ) -> Result<RedisConnectionInfo, StoreError> {
        match &self.provider {
            // The source of the credentials may be down for a while.
            Some(provider) => {
                let Credentials(given) = provider().await.map_err(transient)?;
                Ok(given.set_db(address.db()).set_protocol(address.protocol()))
            }
            None => Ok(address.clone()),
        }
    }

    /// Where the server can be reached that others know by this address.
    pub(super) fn reached_at(&self, address: &Address) -> Address {
        let Some(map) = &self.map else {
            return address.clone();
        };
        let (host, port) = map(&address.host, address.port);
        Address::new(&host, port)
    }
}

//! Connections through TLS.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError,
    TlsCertificates,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError};

use super::RedisStoreBuilder;
use super::options::Timeouts;
use crate::error::{StoreError, StoreErrorKind};

impl RedisStoreBuilder {
    /// Trusts the servers whose certificates these authorities have signed, and no others: one or more certificates, in PEM.
    ///
    /// Without it, a `rediss://` address is trusted if the operating system trusts it. The certificate must be made out to
    /// the host name, or the IP address, that stands in the address. Connections of a pool that the caller has made bring
    /// their own settings; these are then for the connection that listens for wake-ups.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let store = RedisStore::builder("rediss://redis.internal")
    ///     .ca_certificate(std::fs::read("ca.pem")?)
    ///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate to a server that asks for one (mutual TLS): a chain, its own certificate first, and the
    /// private key to it, both in PEM.
    pub fn client_certificate(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some((chain.into(), key.into()));
        self
    }
}

/// Whom to trust, and who we are.
#[derive(Clone, Default)]
pub(super) struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl Tls {
    /// The address, with these settings in it.
    pub(super) fn secure(&self, address: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        self.suit([&address])?;
        self.secure_where_it_applies(address)
    }

    /// Refuses certificates that nobody would see.
    pub(super) fn suit<'a>(
        &self,
        addresses: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<(), StoreError> {
        match self.is_set() && !addresses.into_iter().any(is_encrypted) {
            true => Err(refused("certificates need a `rediss://` address")),
            false => Ok(()),
        }
    }

    /// The same as [`secure`](Self::secure), for one of several addresses that [suit](Self::suit) together.
    pub(super) fn secure_where_it_applies(
        &self,
        address: ConnectionInfo,
    ) -> Result<ConnectionInfo, StoreError> {
        if !is_encrypted(&address) {
            return Ok(address);
        }
        choose_provider();
        if !self.is_set() {
            return Ok(address);
        }
        self.validate()?;
        let certificates = TlsCertificates {
            root_cert: self.authorities.clone(),
            client_tls: self
                .identity
                .clone()
                .map(|(client_cert, client_key)| ClientTlsConfig {
                    client_cert,
                    client_key,
                }),
        };
        let client = Client::build_with_tls(address, certificates)
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        Ok(client.get_connection_info().clone())
    }

    fn is_set(&self) -> bool {
        self.authorities.is_some() || self.identity.is_some()
    }

    /// What is wrong with a PEM would else show as a server that is not trusted.
    fn validate(&self) -> Result<(), StoreError> {
        let is_chain = |pem: &[u8]| {
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            certificates.is_ok_and(|certificates| !certificates.is_empty())
        };
        if self
            .authorities
            .as_deref()
            .is_some_and(|pem| !is_chain(pem))
        {
            return Err(refused("the CA certificate is no certificate in PEM"));
        }
        let Some((chain, key)) = &self.identity else {
            return Ok(());
        };
        if !is_chain(chain) {
            return Err(refused("the client certificate is no certificate in PEM"));
        }
        if PrivateKeyDer::from_pem_slice(key).is_err() {
            return Err(refused(
                "the client certificate's key is no private key in PEM",
            ));
        }
        Ok(())
    }
}

fn is_encrypted(address: &ConnectionInfo) -> bool {
    matches!(address.addr(), ConnectionAddr::TcpTls { .. })
}

/// Makes sure that rustls has somebody to do its cryptography: one that the program has chosen, or ring.
///
/// rustls panics if a program links no provider, or several, and has chosen none.
fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // It fails if somebody else was faster, who then has chosen.
        let _ = ring::default_provider().install_default();
    }
}

/// Why the two sides do not trust each other, and what to do about it; `None` if something else is wrong.
pub(super) fn distrust(error: &RedisError) -> Option<StoreError> {
    let advice = match cause(error)? {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => {
                "the server's certificate was signed by an authority that is not trusted: name it with `ca_certificate`"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired: renew it, or set this machine's clock"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: set this machine's clock"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is made out to another name: use the host name that is in it, or add this one to it"
            }
            _ => "the server's certificate is not acceptable",
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        ) => "the server wants a client certificate: give one with `client_certificate`",
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError,
        ) => {
            "the server does not accept the client certificate: have it signed by an authority that the server trusts"
        }
        rustls::Error::InvalidMessage(_) => {
            "the server does not speak TLS on this port: use its TLS port, or a `redis://` address"
        }
        _ => return None,
    };
    let error = Distrust {
        server: None,
        advice,
        error: error.clone(),
    };
    Some(StoreError::new(StoreErrorKind::Refused, error))
}

/// Says which server, among several, it is that is not trusted or does not trust us. Other errors stay as they are.
pub(super) fn at(server: &dyn fmt::Display, error: StoreError) -> StoreError {
    let source = error.source().and_then(|source| source.downcast_ref());
    let Some(distrust @ Distrust { server: None, .. }) = source else {
        return error;
    };
    let error = Distrust {
        server: Some(server.to_string()),
        ..distrust.clone()
    };
    StoreError::new(StoreErrorKind::Refused, error)
}

/// Why a connection has ended before anything was answered on it: it may be that the server does not trust us.
///
/// By TLS 1.3 it says so only after our part of the handshake, maybe while nobody reads on the new connection. Another one
/// is made, to which the greeting of RESP3 belongs: whoever makes it reads what is said.
pub(super) async fn objection(
    address: &ConnectionInfo,
    timeouts: Timeouts,
    error: StoreError,
) -> StoreError {
    if error.kind() != StoreErrorKind::Unreachable || !is_encrypted(address) {
        return error;
    }
    let settings = address.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let address = address.clone().set_redis_settings(settings);
    let again = async {
        let client = Client::open(address)?;
        let config = timeouts.config();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        connecting.await.map(drop)
    };
    match again.await {
        Err(objection) => distrust(&objection).unwrap_or(error),
        Ok(()) => error,
    }
}

/// What rustls says, inside of what redis says.
fn cause(error: &RedisError) -> Option<&rustls::Error> {
    let boxed: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    let inner = match boxed.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref()? as &(dyn Error + 'static),
        None => &**boxed as &(dyn Error + 'static),
    };
    inner.downcast_ref()
}

#[derive(Debug, Clone)]
struct Distrust {
    server: Option<String>,
    advice: &'static str,
    error: RedisError,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        f.write_str(self.advice)
    }
}

impl Error for Distrust {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

fn refused(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, text)
}

//! Connections with TLS.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::StoreError;
use crate::store::redis::protocol::failure::refused;

/// The TLS settings of the builder.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) authorities: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Makes the TLS settings for connections to these addresses.
    ///
    /// # Errors
    ///
    /// Refuses certificates that no connection uses, certificates that are not PEM, and addresses that disable the
    /// check of the server's certificate or carry certificates of their own.
    pub(crate) fn config<'a>(
        &self,
        addresses: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<TlsConfig, StoreError> {
        let mut encrypted = false;
        for address in addresses {
            encrypted |= is_encrypted(address.addr())?;
        }
        match (encrypted, self.is_set()) {
            (false, false) => Ok(TlsConfig(None)),
            (false, true) => Err(refused("certificates need a `rediss://` address")),
            (true, _) => Ok(TlsConfig(Some(Arc::new(self.client_config()?)))),
        }
    }

    fn is_set(&self) -> bool {
        self.authorities.is_some() || self.identity.is_some()
    }

    /// Uses the process's default `CryptoProvider`, or ring if there is none. It installs no default.
    fn client_config(&self) -> Result<ClientConfig, StoreError> {
        let provider = match CryptoProvider::get_default() {
            Some(provider) => provider.clone(),
            None => Arc::new(ring::default_provider()),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_root_certificates(self.roots()?);
        let Some((chain, key)) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };
        let chain = certificates(chain)
            .ok_or_else(|| refused("the client certificate is no certificate in PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| refused("the client certificate's key is no private key in PEM"))?;
        config.with_client_auth_cert(chain, key).map_err(refused)
    }

    /// The root certificates: those of the builder, or those of the operating system.
    fn roots(&self) -> Result<RootCertStore, StoreError> {
        let mut roots = RootCertStore::empty();
        let Some(pem) = &self.authorities else {
            let native = rustls_native_certs::load_native_certs();
            for error in native.errors {
                tracing::debug!(%error, "a certificate of the operating system is left out");
            }
            roots.add_parsable_certificates(native.certs);
            return Ok(roots);
        };
        const NO_CERTIFICATE: &str = "the CA certificate is no certificate in PEM";
        for certificate in certificates(pem).ok_or_else(|| refused(NO_CERTIFICATE))? {
            roots
                .add(certificate)
                .map_err(|_| refused(NO_CERTIFICATE))?;
        }
        Ok(roots)
    }
}

/// The settings of encrypted connections; without any, no connection is encrypted.
#[derive(Clone)]
pub(crate) struct TlsConfig(Option<Arc<ClientConfig>>);

impl TlsConfig {
    /// Encrypts `stream`, after the server has shown a certificate for `host`.
    pub(super) async fn encrypt(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let Self(Some(config)) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = TlsConnector::from(config.clone());
        connector.connect(name, stream).await
    }
}

/// Whether connections to the address use TLS. Refuses TLS settings in it: they belong into the builder.
fn is_encrypted(address: &ConnectionAddr) -> Result<bool, StoreError> {
    match address {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(refused(
            "`#insecure` switches off the check of the server's certificate: leave it out, and name the authority with \
             `ca_certificate`",
        )),
        ConnectionAddr::TcpTls {
            tls_params: Some(_),
            ..
        } => Err(refused(
            "certificates are not taken from a connection's address: name them with `ca_certificate` and \
             `client_certificate`",
        )),
        address => Ok(matches!(address, ConnectionAddr::TcpTls { .. })),
    }
}

/// The refusal if the client and the server do not accept each other: it lasts until a certificate is changed. rustls names
/// the reason. `None` for other errors.
pub(super) fn tls_refusal(error: &RedisError, server: &dyn fmt::Display) -> Option<StoreError> {
    let boxed: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    let inner = match boxed.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref()? as &(dyn Error + 'static),
        None => &**boxed as &(dyn Error + 'static),
    };
    let reason: &rustls::Error = inner.downcast_ref()?;
    Some(refused(format!("{server}: {reason}")))
}

/// One certificate or more; `None` for anything else.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;
    use crate::error::StoreErrorKind;

    fn config(address: &str) -> Result<TlsConfig, StoreError> {
        Tls::default().config([&address.into_connection_info().expect("an address")])
    }

    #[test]
    fn an_address_does_not_switch_the_check_of_certificates_off() {
        let error = config("rediss://localhost/#insecure")
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        let source = std::error::Error::source(&error).expect("there is one");
        assert!(source.to_string().contains("#insecure"), "{source}");
    }

    /// Otherwise a program could not install a provider of its own afterwards.
    #[test]
    fn no_provider_is_installed_for_the_whole_process() {
        let config = config("rediss://localhost").expect("an address");
        assert!(config.0.is_some());
        assert!(CryptoProvider::get_default().is_none());
    }
}

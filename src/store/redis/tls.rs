//! Connections through TLS.

use std::fmt;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

mod distrust;

use crate::error::{StoreError, StoreErrorKind};
pub(super) use distrust::{at, distrust, objection};

/// Whom to trust, and who we are.
#[derive(Clone, Default)]
pub(super) struct Tls {
    pub(super) authorities: Option<Vec<u8>>,
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
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

fn refused(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, text)
}

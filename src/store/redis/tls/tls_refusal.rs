//! TLS errors in which one side refuses the other.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::{AlertDescription, CertificateError};

use crate::error::{StoreError, StoreErrorKind};

/// Why the client and `server` refuse each other, and what to do about it; `None` for other errors.
pub(in super::super) fn tls_refusal(
    error: &RedisError,
    server: &dyn fmt::Display,
) -> Option<StoreError> {
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
    let error = TlsRefusal {
        server: server.to_string(),
        advice,
        error: error.clone(),
    };
    Some(StoreError::new(StoreErrorKind::Refused, error))
}

/// The rustls error inside the error of the `redis` crate.
fn cause(error: &RedisError) -> Option<&rustls::Error> {
    let boxed: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    let inner = match boxed.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref()? as &(dyn Error + 'static),
        None => &**boxed as &(dyn Error + 'static),
    };
    inner.downcast_ref()
}

#[derive(Debug, thiserror::Error)]
#[error("{server}: {advice}")]
struct TlsRefusal {
    server: String,
    advice: &'static str,
    #[source]
    error: RedisError,
}

//! The TLS settings of a test server: its certificate, and the authorities that it trusts.

use std::fs;
use std::path::Path;

use super::{Authority, Builder, Credentials, RedisServer};

#[derive(Debug, Clone)]
pub(super) struct Tls {
    credentials: Credentials,
    /// The authorities of its clients and of other servers, in PEM.
    authorities: String,
    /// There is no port without TLS.
    pub(super) alone: bool,
}

impl Tls {
    /// Writes the certificates, and returns the lines of `redis.conf` about them.
    pub(super) fn write(&self, directory: &Path) -> [(&'static str, String); 3] {
        [
            ("tls-cert-file", &self.credentials.certificate),
            ("tls-key-file", &self.credentials.key),
            ("tls-ca-cert-file", &self.authorities),
        ]
        .map(|(name, pem)| {
            let path = directory.join(name);
            fs::write(&path, pem).expect("a certificate is written");
            (name, path.display().to_string())
        })
    }
}

impl Builder {
    /// Adds a TLS port: the server presents `credentials`, and accepts clients that `authority` has signed.
    pub(crate) fn tls(mut self, credentials: Credentials, authority: &Authority) -> Self {
        self.tls = Some(Tls {
            credentials,
            authorities: authority.certificate(),
            alone: false,
        });
        self
    }

    /// Only a TLS port, which [`RedisServer::port`] and [`RedisServer::url`] then name. The server also uses TLS to other
    /// servers: masters, replicas, nodes of its cluster, sentinels. The test's own connections use the unix socket.
    pub(crate) fn tls_alone(mut self, credentials: Credentials, authority: &Authority) -> Self {
        self = self.tls(credentials, authority);
        self.configured_tls().alone = true;
        self.config("tls-replication", "yes")
            .config("tls-cluster", "yes")
    }

    /// Also accepts clients and servers that this authority has signed.
    pub(crate) fn trusting(mut self, authority: &Authority) -> Self {
        let authorities = &mut self.configured_tls().authorities;
        authorities.push_str(&authority.certificate());
        self
    }

    /// The same server with another certificate.
    pub(crate) fn showing(mut self, credentials: Credentials) -> Self {
        self.configured_tls().credentials = credentials;
        self
    }

    /// Whether clients must show a certificate on the TLS port.
    pub(crate) fn mutual(self, required: bool) -> Self {
        self.config("tls-auth-clients", if required { "yes" } else { "no" })
    }

    pub(super) fn is_tls_alone(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.alone)
    }

    fn configured_tls(&mut self) -> &mut Tls {
        self.tls.as_mut().expect("a server with TLS")
    }
}

impl RedisServer {
    /// Starts it again with another certificate.
    pub(crate) async fn restart_showing(&mut self, credentials: Credentials) {
        self.settings = self.settings.clone().showing(credentials);
        let tls = self.settings.configured_tls();
        // The file names stay the same.
        tls.write(self.directory.path());
        self.restart().await;
    }
}

//! A certificate authority of the test's own.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

/// Signs certificates. Two authorities are independent.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Self { issuer }
    }

    /// The authority's own certificate, in PEM.
    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for these host names and addresses; without any, one for a client.
    pub(crate) fn signs(&self, names: &[&str]) -> Credentials {
        self.sign(&named("redis", names))
    }

    /// An expired certificate.
    pub(crate) fn signed_long_ago(&self, names: &[&str]) -> Credentials {
        let mut params = named("redis", names);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Credentials {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Credentials {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn named(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

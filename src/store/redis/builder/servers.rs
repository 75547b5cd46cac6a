//! Where the locks are, as a program says it.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::StoreError;
use crate::store::redis::link::address::is_encrypted;
use crate::store::redis::protocol::failure::refused;

/// Where the locks are.
#[derive(Clone)]
pub(super) enum Servers {
    One(ConnectionInfo),
    /// The server that the sentinels name as this master, with the settings of `like`.
    Watched {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        like: ConnectionInfo,
    },
    /// The Cluster of which these are some servers.
    Cluster(Vec<ConnectionInfo>),
}

impl Servers {
    pub(super) fn one(address: &str) -> Result<Self, StoreError> {
        read_address(address).map(Self::One)
    }

    pub(super) fn cluster<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, StoreError> {
        read_all(addresses).map(Self::Cluster)
    }

    pub(super) fn watched<A: AsRef<str>>(
        sentinels: impl IntoIterator<Item = A>,
        master: String,
    ) -> Result<Self, StoreError> {
        let sentinels = read_all(sentinels)?;
        // Sentinels with TLS name the servers' TLS ports.
        let like = match sentinels.iter().any(is_encrypted) {
            true => "rediss://any",
            false => "redis://any",
        };
        let like = read_address(like)?;
        Ok(Self::Watched {
            sentinels,
            master,
            like,
        })
    }

    /// The settings of the servers behind sentinels are those of this address.
    pub(super) fn like(self, address: &str) -> Result<Self, StoreError> {
        match self {
            Self::Watched {
                sentinels, master, ..
            } => Ok(Self::Watched {
                sentinels,
                master,
                like: read_address(address)?,
            }),
            _ => Err(refused(
                "`servers` is for sentinels: put credentials and database into the address",
            )),
        }
    }

    /// The addresses that the program has named.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &ConnectionInfo> {
        let (some, one) = match self {
            Self::One(address) => (&[][..], Some(address)),
            Self::Watched {
                sentinels, like, ..
            } => (&sentinels[..], Some(like)),
            Self::Cluster(seeds) => (&seeds[..], None),
        };
        some.iter().chain(one)
    }
}

fn read_all<A: AsRef<str>>(
    addresses: impl IntoIterator<Item = A>,
) -> Result<Vec<ConnectionInfo>, StoreError> {
    let addresses = addresses.into_iter();
    addresses
        .map(|address| read_address(address.as_ref()))
        .collect()
}

/// Reads the address of a server. An error shows it without what may be a password.
fn read_address(address: &str) -> Result<ConnectionInfo, StoreError> {
    if !cfg!(feature = "redis-tls") && address.starts_with("rediss://") {
        return Err(refused(
            "a `rediss://` address needs the feature `redis-tls` of tower-distributed-lock",
        ));
    }
    let read = address.into_connection_info();
    let read = read.ok().filter(|read| match read.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => !host.is_empty(),
        _ => true,
    });
    read.ok_or_else(|| {
        refused(format!(
            "`{}` is no address of a Redis server: write `redis://user:password@host:6379/0`, `rediss://…` for TLS or \
             `redis+unix:///path`, with a password that is percent-encoded",
            without_password(address)
        ))
    })
}

/// The address without its parameters, and without what may be a password in it: everything before the last `@`, and what follows a
/// colon unless it is a port.
fn without_password(address: &str) -> String {
    let is_scheme = |text: &str| !text.contains([':', '@', '/']);
    let scheme = address
        .find("://")
        .filter(|end| is_scheme(&address[..*end]));
    let (scheme, rest) = address.split_at(scheme.map_or(0, |end| end + 3));
    let (login, server) = match rest.rsplit_once('@') {
        // The password is not percent-encoded, or a parameter contains the `@`.
        Some((login, _)) if login.contains(['?', '#']) => return format!("{scheme}…"),
        Some((_, server)) => ("…@", server),
        None => ("", rest),
    };
    let server = server.split(['?', '#']).next().unwrap_or_default();
    let authority = server.split('/').next().unwrap_or_default();
    let is_plain = authority.rsplit_once(':').is_none_or(|(host, port)| {
        let is_host = !host.contains(':') || host.starts_with('[');
        is_host && port.parse::<u16>().is_ok()
    });
    match server.split_once(':') {
        Some((host, _)) if !is_plain => format!("{scheme}{login}{host}:…"),
        _ => format!("{scheme}{login}{server}"),
    }
}

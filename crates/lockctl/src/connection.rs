//! The store, and the connection to it.

use std::env::{self, VarError};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tower_distributed_lock::store::redis::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
};

use tower_distributed_lock::client::LockClientBuilder;
use tower_distributed_lock::store::redis::{Credentials, RedisStoreBuilder};
use tower_distributed_lock::{LockAdmin, LockClient, RedisStore};
use tower_distributed_lock_quorum::QuorumStore;

use crate::exit::Failure;

/// Where the locks are. Every command takes these options, before its name or after it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where the locks are")]
pub(crate) struct Connection {
    /// Address of the server: redis://HOST:PORT/DB, rediss://… for TLS, redis+unix:///PATH. Several, separated by commas or
    /// by repeating the option, need --cluster, --sentinel or --quorum. An address with a password is taken from the
    /// environment only. [env: REDIS_URL]
    #[arg(long, global = true, value_name = "URL", value_delimiter = ',')]
    url: Vec<String>,

    /// The addresses are those of some servers of a Redis Cluster
    #[arg(long, global = true)]
    pub(crate) cluster: bool,

    /// The addresses are those of sentinels, which name the server MASTER
    #[arg(long, global = true, value_name = "MASTER")]
    pub(crate) sentinel: Option<String>,

    /// The addresses are those of independent servers, of which a majority holds each lock (Redlock)
    #[arg(long, global = true)]
    quorum: bool,

    /// Name space of the service: what stands before all its names, without the colon
    #[arg(long, global = true, value_name = "NAME", value_parser = namespace)]
    #[arg(env = "LOCKCTL_NAMESPACE", hide_env_values = true)]
    pub(crate) namespace: Option<String>,

    /// User of the servers; with sentinels, not of the sentinels. The password is in the file of --password-file, or in the
    /// environment variable REDIS_PASSWORD
    #[arg(long, global = true, value_name = "NAME")]
    #[arg(env = "REDIS_USER", hide_env_values = true)]
    user: Option<String>,

    /// File with the password; a line break at its end does not count
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "REDIS_PASSWORD_FILE", hide_env_values = true)]
    password_file: Option<PathBuf>,

    /// Number of the database behind sentinels; elsewhere it is part of the address
    #[arg(long, global = true, value_name = "NUMBER")]
    database: Option<i64>,

    /// File with the certificates (PEM) of the authorities that sign those of the servers, in place of the system's
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "LOCKCTL_TLS_CA", hide_env_values = true)]
    tls_ca: Option<PathBuf>,

    /// File with the client certificate (PEM), for servers that ask for one
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "LOCKCTL_TLS_CERT", hide_env_values = true)]
    tls_cert: Option<PathBuf>,

    /// File with the private key (PEM) of the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "LOCKCTL_TLS_KEY", hide_env_values = true)]
    tls_key: Option<PathBuf>,
}

/// An address, and what it says.
struct Address {
    url: String,
    read: ConnectionInfo,
}

fn builder_with(builder: RedisStoreBuilder, credentials: Credentials) -> RedisStoreBuilder {
    builder.credentials(move || std::future::ready(Ok(credentials.clone())))
}

impl Connection {
    /// Whether grants carry fencing tokens.
    pub(crate) fn issues_tokens(&self) -> bool {
        !self.quorum
    }

    /// Connects. In a quorum, a minority of the servers may be down.
    pub(crate) async fn client(&self) -> Result<LockClient, Failure> {
        self.client_as(None).await
    }

    /// Connects, and announces this process under `label`.
    pub(crate) async fn client_as(&self, label: Option<&str>) -> Result<LockClient, Failure> {
        let mut builder = self.connect().await?;
        if let Some(name) = &self.namespace {
            builder = builder.namespace(name);
        }
        if let Some(label) = label {
            builder = builder.announce(label);
        }
        Ok(builder.build())
    }

    async fn connect(&self) -> Result<LockClientBuilder, Failure> {
        let addresses = self.addresses()?;
        let password = self.password()?;
        let with_credentials = |builder, address: &Address| {
            let credentials = self.credentials(address, &password)?;
            Ok::<_, Failure>(match credentials {
                Some(credentials) => builder_with(builder, credentials),
                None => builder,
            })
        };
        let deployments = [self.cluster, self.quorum, self.sentinel.is_some()];
        if deployments.iter().filter(|chosen| **chosen).count() > 1 {
            return Err(Failure::usage(
                "--cluster, --sentinel and --quorum are different deployments: choose one",
            ));
        }
        if self.database.is_some() && self.sentinel.is_none() {
            return Err(Failure::usage(
                "--database is for --sentinel: put the number at the end of the address, as in redis://host/2",
            ));
        }
        let builder = if let Some(master) = &self.sentinel {
            let servers = self.behind_sentinels(&addresses)?;
            let urls = addresses.iter().map(|address| &address.url);
            let builder = RedisStore::sentinel(urls, master).servers(&servers.url);
            with_credentials(builder, &servers)?
        } else if self.cluster {
            let urls = addresses.iter().map(|address| &address.url);
            with_credentials(RedisStore::cluster(urls), &addresses[0])?
        } else if self.quorum {
            let stores = addresses
                .into_iter()
                .map(|address| {
                    let builder = RedisStore::builder(&address.url);
                    let builder = with_credentials(builder, &address)?;
                    Ok(self.with_tls(builder)?.connect_lazy()?)
                })
                .collect::<Result<Vec<_>, Failure>>()?;
            let quorum = QuorumStore::new(stores);
            let quorum = quorum.map_err(|error| Failure::usage(error.to_string()))?;
            return Ok(LockClient::builder(quorum.inspected()));
        } else {
            let [address] = <[_; 1]>::try_from(addresses).map_err(|_| {
                Failure::usage("there are several addresses: say with --cluster, --sentinel MASTER or --quorum what they are")
            })?;
            with_credentials(RedisStore::builder(&address.url), &address)?
        };
        let store = self.with_tls(builder)?.connect().await?;
        Ok(LockClient::builder(store))
    }

    /// Connects, to inspect locks and to break them.
    pub(crate) async fn admin(&self) -> Result<LockAdmin, Failure> {
        Ok(self.client().await?.admin()?)
    }

    /// At least one.
    fn addresses(&self) -> Result<Vec<Address>, Failure> {
        let (texts, shown) = match self.url.is_empty() {
            false => (self.url.clone(), true),
            true => {
                let url = variable("REDIS_URL")?.unwrap_or_default();
                let urls = url.split(',').map(str::trim).filter(|url| !url.is_empty());
                (urls.map(str::to_owned).collect(), false)
            }
        };
        if texts.is_empty() {
            return Err(Failure::usage(
                "no address: set REDIS_URL, or name it with --url redis://HOST",
            ));
        }
        texts.iter().map(|text| address(text, shown)).collect()
    }

    /// The password of the options or the environment.
    fn password(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.password_file else {
            return variable("REDIS_PASSWORD");
        };
        let text = String::from_utf8(read(file)?)
            .map_err(|_| Failure::usage(format!("{} is not text in UTF-8", file.display())))?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// User and password, each from the options if it is there, otherwise from the address.
    fn credentials(
        &self,
        address: &Address,
        password: &Option<String>,
    ) -> Result<Option<Credentials>, Failure> {
        let settings = address.read.redis_settings();
        let password = password.as_deref().or(settings.password());
        let user = self.user.as_deref().or(settings.username());
        match (user, password) {
            (Some(user), Some(password)) => Ok(Some(Credentials::new(user, password))),
            (None, password) => Ok(password.map(Credentials::password)),
            (Some(_), None) => Err(Failure::usage(
                "a user needs a password: put it into REDIS_PASSWORD, or into a file (--password-file)",
            )),
        }
    }

    /// The settings for servers that sentinels name: with TLS if the sentinels' addresses have TLS.
    fn behind_sentinels(&self, sentinels: &[Address]) -> Result<Address, Failure> {
        let mut addresses = sentinels.iter().map(|sentinel| sentinel.read.addr());
        let is_tls = addresses.any(|address| matches!(address, ConnectionAddr::TcpTls { .. }));
        let scheme = if is_tls { "rediss" } else { "redis" };
        let database = self.database.unwrap_or(0);
        address(&format!("{scheme}://any/{database}"), true)
    }

    fn with_tls(&self, mut builder: RedisStoreBuilder) -> Result<RedisStoreBuilder, Failure> {
        if let Some(file) = &self.tls_ca {
            builder = builder.ca_certificate(read(file)?);
        }
        match (&self.tls_cert, &self.tls_key) {
            (Some(chain), Some(key)) => Ok(builder.client_certificate(read(chain)?, read(key)?)),
            (None, None) => Ok(builder),
            _ => Err(Failure::usage(
                "--tls-cert and --tls-key belong together: name both",
            )),
        }
    }
}

/// The text of a variable. One that is empty counts as one that is not set.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        // No message shows the value: it may contain a password.
        Err(VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not text in UTF-8"))),
    }
}

/// Reads an address. An address that is `shown` on the command line must not have a password: every user of the machine sees
/// it there.
fn address(text: &str, shown: bool) -> Result<Address, Failure> {
    // The text may contain a password, so no message repeats it.
    let read = text
        .into_connection_info()
        .map_err(|error| Failure::usage(format!("an address cannot be read: {error}")))?;
    match shown && read.redis_settings().password().is_some() {
        true => Err(Failure::usage(
            "a password on the command line can be read by every user of this machine: put the address into REDIS_URL, or the \
             password into REDIS_PASSWORD or a file (--password-file)",
        )),
        false => Ok(Address {
            url: text.to_owned(),
            read,
        }),
    }
}

/// Reads a name space. The library takes no other, and panics.
fn namespace(text: &str) -> Result<String, &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_~/".contains(c);
    let word = text.trim_end_matches([':', '.']);
    let tag = word.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
    let plain = tag.unwrap_or(word);
    match !plain.is_empty() && text.len() <= 64 && plain.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(
            "a name space is one word of up to 64 letters, digits and -_~/, in braces or not, with colons or dots at its end only",
        ),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_taken_from_where_others_do_not_see_it() {
        let refused = address("redis://me:secret@host", true)
            .map(drop)
            .unwrap_err();
        assert_eq!(refused.code(), 64);
        assert!(!refused.to_string().contains("secret"));
        assert!(address("redis://me:secret@host", false).is_ok());
        assert!(address("redis://me@host", true).is_ok());
    }

    #[test]
    fn a_name_space_is_one_that_the_library_takes() {
        use tower_distributed_lock::{LockClient, MemoryStore};
        for name in ["prod-shop", "a:", "app.", "{a}", &"x".repeat(64), "~/_-"] {
            let name = namespace(name).expect("it is one");
            LockClient::builder(MemoryStore::new())
                .namespace(name)
                .build();
        }
        for name in ["", ":", "a:b", "a b", "{a", "{}", "é", &"x".repeat(65)] {
            assert!(namespace(name).is_err(), "{name}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_read_is_not_repeated() {
        let refused = address("http://me:secret@host", false)
            .map(drop)
            .unwrap_err();
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
}

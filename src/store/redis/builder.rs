//! The builder of a [`RedisStore`], and the deployments that it can be begun for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use deadpool_redis::Config;
use redis::IntoConnectionInfo;

use super::link::address::{Address, addresses};
use super::link::connector::Connector;
use super::link::context::LinkSettings;
use super::link::endpoint::Endpoint;
use super::link::endpoint::access::Access;
use super::link::endpoint::tls::Tls;
use super::link::sentinel::WatchedSentinels;
use super::link::timeouts::Timeouts;
use super::protocol::channels::Channels;
use super::protocol::failure::refused;
use super::servers::Router;
use super::servers::cluster::Cluster;
use super::servers::node::Node;
use super::{AclRules, Credentials, RedisStore, StoreInner};
use crate::error::{BoxError, StoreError};
use crate::limits::FOR_EVER;
use crate::store::LATENESS;
use servers::Servers;

mod servers;

/// Sets up a [`RedisStore`]; [`RedisStore::builder`] begins one.
///
/// ```no_run
/// # async fn example() -> Result<(), tower_distributed_lock::error::StoreError> {
/// use std::time::Duration;
/// use tower_distributed_lock::RedisStore;
///
/// let store = RedisStore::builder("redis://127.0.0.1")
///     .response_timeout(Duration::from_secs(1))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    servers: Result<Servers, StoreError>,
    /// The kind of channels; `None`: each server's version decides.
    channels: Option<Channels>,
    timeouts: Timeouts,
    tls: Tls,
    access: Access,
    replicas: usize,
}

/// Without what may be secret.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects to the server at `redis://…`, `rediss://…` (with the feature `redis-tls`) or `redis+unix://…`.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`], also for cancellation.
    pub async fn connect(address: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder(address).connect().await
    }

    /// A builder of a store for the server at `address`.
    pub fn builder(address: impl AsRef<str>) -> RedisStoreBuilder {
        Self::at(Servers::one(address.as_ref()))
    }

    fn at(servers: Result<Servers, StoreError>) -> RedisStoreBuilder {
        RedisStoreBuilder {
            servers,
            channels: None,
            timeouts: Timeouts::default(),
            tls: Tls::default(),
            access: Access::default(),
            replicas: 0,
        }
    }

    /// A builder of a store in the Redis Cluster of the servers at `addresses`.
    ///
    /// Some of its servers are enough: they name the others, which get connections with the credentials, protocol and TLS
    /// settings of the first address.
    ///
    /// * **TLS.** All addresses begin with `rediss://`, or none. The certificate of a server must contain the name that
    ///   the others use for it: its IP address, unless they announce host names (`cluster-announce-hostname`, with
    ///   `cluster-preferred-endpoint-type hostname`). A server that is not trusted fails alone, with an error that names
    ///   it: nothing is sent to it, and the other servers are used.
    /// * **Names.** All keys of a lock are in one slot. A name that Redisson's naming would spread over several slots,
    ///   such as `{}a`, `a{b` or `a}b`, is refused with [`Unsupported`](crate::LockError::Unsupported); so is the empty
    ///   name.
    /// * **Several keys** are taken by one script if they share a slot, as `{user:7}.cart` and `{user:7}.stock` do. Others
    ///   are taken one after the other, finally all or nothing.
    /// * **Moving slots** are followed, and so are replicas that take over. While a slot moves, or no server serves it,
    ///   calls fail with [`Transient`](crate::error::StoreErrorKind::Transient): waiting requests and releases try again. A
    ///   server that fails affects only the locks in its slots.
    /// * **Wake-ups** use the same channels as Redisson's; see [`sharded_channels`](RedisStoreBuilder::sharded_channels).
    /// * **A failover loses** changes that the new master did not have, as with sentinels: the holder gets
    ///   [`Lost`](crate::LockError::Lost), and no confirmation. With [`replicas`](RedisStoreBuilder::replicas) a change
    ///   counts only after acknowledgements.
    ///
    /// A restricted user needs more rights than for one server: [`AclRules::cluster`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::error::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let seeds = ["redis://locks:secret@10.0.0.1:7000", "redis://locks:secret@10.0.0.2:7000"];
    /// let store = RedisStore::cluster(seeds).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> RedisStoreBuilder {
        Self::at(Servers::cluster(addresses))
    }

    /// A builder of a store from a configuration of [`deadpool_redis`]. The store keeps a few connections of its own, so of the
    /// settings of the pool only the time limit for creation counts.
    pub fn from_config(config: Config) -> RedisStoreBuilder {
        let timeout = config.get_pool_config().timeouts.create;
        let builder = match (config.url, config.connection) {
            (Some(url), None) => Self::builder(url),
            (None, connection) => {
                let connection = connection.unwrap_or_default().into_connection_info();
                Self::at(connection.map(Servers::One).map_err(refused))
            }
            (Some(_), Some(_)) => Self::at(Err(refused(
                "the configuration has both `url` and `connection`: remove one",
            ))),
        };
        match timeout {
            Some(timeout) => builder.connect_timeout(timeout),
            None => builder,
        }
    }

    /// The rights that the Redis user of a store needs for the locks whose names begin with one of `prefixes`; the empty
    /// one stands for all locks.
    ///
    /// Names with a hash tag of their own need a prefix that ends in the brace, such as `order:{`. Records of requests
    /// (`IdempotencyLayer`) begin with `idempotency:`.
    pub fn acl_rules<P>(prefixes: impl IntoIterator<Item = P>) -> AclRules
    where
        P: Into<String>,
    {
        AclRules::new(prefixes.into_iter().map(Into::into).collect())
    }

    /// A builder of a store in the server that the sentinels name as `master`.
    ///
    /// List all sentinels: the answer with the latest failover counts. Every new connection asks them again, and checks
    /// that its server is a master. Commands and wake-ups follow a failover without a restart: until there is a master,
    /// calls fail with [`Transient`](crate::error::StoreErrorKind::Transient), so that waiting requests continue to wait; holds
    /// that the new master has are renewed there, and others are lost. While no sentinel answers, open connections are
    /// still used.
    ///
    /// The user of the sentinels needs the right `+sentinel`.
    ///
    /// With `rediss://` addresses, connections to the sentinels use TLS, and so do those to the servers, unless
    /// [`servers`](RedisStoreBuilder::servers) is set. The authorities and the client certificate are the same for both.
    /// Certificates must contain the sentinels' addresses as they are written here, and the servers' addresses as the
    /// sentinels name them: IP addresses, unless they announce host names (`resolve-hostnames` and `announce-hostnames` of
    /// the sentinels, `replica-announce-ip` of the servers). The answer of an untrusted sentinel is ignored; nothing is
    /// sent to an untrusted master, and the error names it.
    ///
    /// A failover loses changes that the new master did not have. A hold that it did not have can be granted again while
    /// its holder still works: the holder's renewal or release returns [`Lost`](crate::LockError::Lost).
    /// [`replicas`](RedisStoreBuilder::replicas) can prevent that.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::error::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let store = RedisStore::sentinel(sentinels, "mymaster")
    ///     .servers("redis://locks:secret@any/0") // user, password, database; no host: the sentinels know it
    ///     .connect()
    ///     .await?;
    ///
    /// // All of it by TLS.
    /// let sentinels = ["rediss://10.0.0.1:26379", "rediss://10.0.0.2:26379", "rediss://10.0.0.3:26379"];
    /// let store = RedisStore::sentinel(sentinels, "mymaster")
    ///     .servers("rediss://locks:secret@any/0")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel<A: AsRef<str>>(
        sentinels: impl IntoIterator<Item = A>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        Self::at(Servers::watched(sentinels, master.into()))
    }
}

impl RedisStoreBuilder {
    /// Sets the settings of connections to the servers behind the sentinels: user, password, database, protocol and
    /// encryption of this address. Its host and port are ignored: `rediss://user:password@any/2`. Without it: no password,
    /// database 0, and encrypted if any of the sentinels' addresses is. The sentinels' own credentials are in their own
    /// addresses.
    ///
    /// For every other store these settings are in its address; if it has both, `connect` fails.
    pub fn servers(mut self, address: impl AsRef<str>) -> Self {
        self.servers = self
            .servers
            .and_then(|servers| servers.like(address.as_ref()));
        self
    }

    /// Sets how long a command may take: at most 60 seconds, because a copy of it may arrive within twice that time, and a store
    /// remembers [for two minutes](crate::store::LATENESS) that an attempt was withdrawn. The default is 3 seconds.
    ///
    /// After a sixth of that time, all connections to the server are probed. A connection is replaced if it does not answer
    /// within a third of the time (at least half a second) while a new connection does; the commands on it fail as
    /// unanswered. On Linux, the kernel ends a connection whose bytes stay unacknowledged for this time (`TCP_USER_TIMEOUT`).
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// Sets how long connecting may take, from the name lookup to the first answer. The default is 5 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout.min(FOR_EVER);
        self
    }

    /// Sets whether releases are published on sharded channels: `SPUBLISH` and `SSUBSCRIBE` instead of `PUBLISH` and
    /// `SUBSCRIBE`. For a [Cluster](RedisStore::cluster) alone.
    ///
    /// Clients of both kinds exclude each other, but they do not get each other's messages, and find out by polling. The
    /// default is what Redisson does (`shardedSubscriptionMode` AUTO): sharded on servers that know it, which those of Redis 7
    /// and Valkey do. A server is known by its answer to `HELLO`: one that does not give its version gets plain channels.
    pub fn sharded_channels(mut self, sharded: bool) -> Self {
        self.channels = Some(match sharded {
            true => Channels::Sharded,
            false => Channels::Plain,
        });
        self
    }

    /// Sets how many replicas must acknowledge a grant, a renewal or a release before it counts. The default is 0: the master's
    /// answer is enough.
    ///
    /// Redis replicates asynchronously. A master that fails may lose its latest grants, and a master that does not know that it was
    /// replaced continues to grant. With this setting the store sends `WAIT` after each change, on the same connection, and the
    /// change counts only when enough replicas have it.
    ///
    /// | | too few acknowledgements |
    /// |---|---|
    /// | acquire | it is taken back, and tried again while the request waits; then it fails with [`Unacknowledged`](crate::error::StoreErrorKind::Unacknowledged) |
    /// | renew | the deadline stays where it was: without replicas for the rest of a lease, the hold is lost |
    /// | release, with a record or without | `Unacknowledged`: the hold has ended, but nothing is confirmed |
    /// | owner check of a hold that lives on | the same, nothing is confirmed |
    /// | read of a record | the same, the record is no answer: a former master may have it alone |
    ///
    /// A layer decides about an unconfirmed release by its [`Confirm`](crate::Confirm): by the deadline, or, with
    /// [`Confirm::Strict`](crate::Confirm::Strict), always with 500.
    ///
    /// # The default
    ///
    /// The default is 0 behind sentinels and in a Cluster as well, although a failover can then grant a lock twice, even a planned
    /// `SENTINEL FAILOVER`, whose former master stays writable for some ten seconds. Redisson asks by default, since 4.0, whether
    /// the replicas that the master counts have a new lock. That keeps neither promise without a condition, because a former master
    /// may count none, while it makes the outage of a replica an outage of the locks, and adds a round trip to each change. The
    /// number of all replicas keeps both promises, and only the program knows that number. So the choice is the program's, and an
    /// [audit](crate::LockClient::audit) warns (`grants_alone`) until it is made.
    ///
    /// During a failover, a store that needs one replica grants nothing until one follows the new master, 10 to 11 s with the
    /// defaults of Sentinel. A request waits for that as long as its wait lasts.
    ///
    /// # What is promised
    ///
    /// S1 is lease exclusion: live holds satisfy their modes' rule. S5 is confirmed exclusion: work whose releases were
    /// confirmed never overlapped.
    ///
    /// | deployment | replicas | S1 | S5 |
    /// |---|---|---|---|
    /// | one server | 0 | while it keeps its data and its clock | yes, also after it lost them |
    /// | master and replicas, with sentinels or without | 0 | not across a failover that loses the write | unless a former master still accepts writes |
    /// | | *n* | across a failover to one of those that acknowledged; to any, if *n* is the number of replicas | as long as a former master keeps fewer than *n* replicas |
    ///
    /// From Redis 7 on, a lease is replicated as a time of the day. If the clock of a promoted replica is ahead, leases end that much
    /// earlier, and S1 does not hold for the difference, whatever the setting; an audit compares the clocks (`replica_clock`).
    ///
    /// Otherwise the number of all replicas keeps both promises without a condition: a promoted replica does not follow its former
    /// master any more, so the former master never has enough. The price is that all replicas must be up.
    ///
    /// # What it costs
    ///
    /// Each change costs one more round trip, and the replicas' answer. `WAIT` blocks the whole connection, so one `WAIT` serves all
    /// changes before it: throughput grows with the number of callers as before. If a replica hangs, every change waits for the
    /// [timeout](Self::replica_timeout) and fails, until the master drops the replica (`repl-timeout`, 60 seconds). The user needs the
    /// right `+wait`.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets how long replicas may take to acknowledge. This time is part of the caller's wait. The default is one second.
    ///
    /// Other commands on the connection wait meanwhile; their [`response_timeout`](Self::response_timeout) is extended by
    /// this time.
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.replicas = timeout.min(FOR_EVER);
        self
    }

    /// Sets where the credentials come from: each new connection calls `credentials`, and uses its result instead of the
    /// credentials in the address. So a password can be rotated, and short-lived tokens, such as those of IAM and Entra ID, can
    /// be used. Sentinels have the credentials in their addresses.
    ///
    /// An error counts as transient, and the store tries again. A connection whose credentials have expired is replaced when the
    /// server ends it or answers `NOAUTH`.
    ///
    /// ```no_run
    /// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
    /// # async fn example() -> Result<(), tower_distributed_lock::error::StoreError> {
    /// use tower_distributed_lock::store::redis::Credentials;
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let store = RedisStore::builder("rediss://locks.example.com")
    ///     .credentials(|| async { Ok(Credentials::new("locks", token().await?)) })
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, Fut>(mut self, credentials: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.access.provider = Some(Arc::new(move || Box::pin(credentials())));
        self
    }

    /// Sets where the store reaches a server that the sentinels, or the nodes of a Cluster, know by this host and port: for servers
    /// behind NAT or a port-forward, which announce addresses that a client cannot use.
    ///
    /// Addresses that the program gives to the store are used as they are. With TLS, the certificate must contain the new host.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::error::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let store = RedisStore::cluster(["redis://localhost:17000"])
    ///     .address_map(|_host, port| ("localhost".to_owned(), port + 10_000))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.access.map = Some(Arc::new(map));
        self
    }

    /// Connects, and checks that the server answers.
    ///
    /// # Errors
    ///
    /// If the address, or another setting, cannot be used, the server cannot be reached, the password is wrong, or the server is still loading.
    /// If it is a replica, a sentinel or a node of a Cluster, which does not have all locks: the error names the right
    /// constructor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.connect_lazy()?;
        store.inner.router.connect().await?;
        Ok(store)
    }

    /// Connects when the store is first used, and retries in the background until Redis answers: for a service that starts
    /// before Redis.
    ///
    /// # Errors
    ///
    /// If the address, or another setting, cannot be used.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        let settings = LinkSettings {
            replicas: self.replicas,
            background: Arc::default(),
            channels: match self.servers {
                Ok(Servers::Cluster(_)) => self.channels,
                _ => Some(Channels::Plain),
            },
        };
        let inner = Arc::new(StoreInner {
            outside: Arc::default(),
            background: settings.background.clone(),
            acknowledging: self.replicas > 0,
            recording: AtomicBool::new(false),
            router: Arc::new(self.router(settings)?),
        });
        Ok(RedisStore { inner })
    }

    fn router(self, settings: LinkSettings) -> Result<Router, StoreError> {
        let servers = self.servers?;
        if self.channels.is_some() && !matches!(servers, Servers::Cluster(_)) {
            return Err(refused(
                "only a Cluster has sharded channels: use `RedisStore::cluster`, or leave the setting out",
            ));
        }
        if self.timeouts.response > LATENESS / 2 {
            return Err(refused(
                "a `response_timeout` is at most 60 seconds: the store forgets after two minutes that an attempt was withdrawn",
            ));
        }
        let tls = self.tls.config(servers.addresses())?;
        let endpoint = |address, access| Endpoint::new(address, tls.clone(), self.timeouts, access);
        let connector = match servers {
            Servers::One(address) => Connector::Server(endpoint(address, self.access)),
            Servers::Watched { sentinels, .. } if sentinels.is_empty() => {
                return Err(refused("name at least one sentinel"));
            }
            Servers::Watched {
                sentinels,
                master,
                like,
            } => {
                // Sentinels have credentials of their own.
                let sentinels = sentinels.into_iter();
                let sentinels = sentinels.map(|address| endpoint(address, Access::default()));
                let (server, thread) = (endpoint(like, self.access), settings.background.clone());
                Connector::Sentinels(WatchedSentinels::new(sentinels, master, server, thread))
            }
            Servers::Cluster(seeds) => {
                let none = || refused("a Cluster needs the address of one of its servers at least");
                let first = seeds.first().cloned().ok_or_else(none)?;
                let (seeds, like) = (
                    addresses(&seeds).map_err(refused)?,
                    endpoint(first, self.access),
                );
                let cluster = Cluster::new(seeds, like, settings);
                return Ok(Router::Cluster(Arc::new(cluster)));
            }
        };
        let node = Node::new(Address::default(), connector, settings);
        Ok(Router::One(Arc::new(node)))
    }
}

#[cfg(feature = "redis-tls")]
impl RedisStoreBuilder {
    /// Trusts the servers whose certificates these authorities have signed, and no others: one or more certificates, in
    /// PEM.
    ///
    /// Without it, a `rediss://` address is trusted if the operating system trusts it. The certificate must contain the
    /// host name, or the IP address, of the address. For servers that [sentinels](crate::RedisStore::sentinel) or [a
    /// Cluster](crate::RedisStore::cluster) name, it must contain that name.
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

    /// Presents this certificate to a server that requests one (mutual TLS): a chain that begins with the client's
    /// certificate, and its private key, both in PEM.
    pub fn client_certificate(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some((chain.into(), key.into()));
        self
    }
}

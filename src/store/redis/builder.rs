//! The builder of a [`RedisStore`], and the deployments that it can be begun for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_redis::{Config, Pool, PoolConfig};
use redis::{ConnectionInfo, IntoConnectionInfo};

use super::channels::Channels;
use super::cluster::{self, Cluster, MemberFactory};
use super::connector::Connector;
use super::endpoint::{Endpoint, bad_address, is_encrypted};
use super::failure::refused;
use super::node::Node;
use super::node_context::ConnectionSettings;
use super::replicas::{Acknowledgement, Replicas};
use super::router::Router;
use super::sentinel::WatchedSentinels;
use super::timeouts::Timeouts;
use super::tls::Tls;
use super::{AclRules, RedisStore, StoreInner};
use crate::error::StoreError;
use crate::limits::FOR_EVER;

/// How many connections share the traffic. One is nearly as fast, and more than two add nothing.
const CONNECTIONS: usize = 2;

/// Sets up a [`RedisStore`]; [`RedisStore::builder`] begins one.
///
/// ```no_run
/// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
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
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    /// With sentinels, only its credentials and settings count.
    address: Result<ConnectionInfo, StoreError>,
    /// The sentinels, or the servers of a Cluster, of which `address` is the first.
    others: Result<Vec<ConnectionInfo>, StoreError>,
    target: RedisTarget,
    /// The kind of channels; `None`: the store asks the server.
    channels: Option<Channels>,
    timeouts: Timeouts,
    /// The number of connections for commands.
    commands: usize,
    tls: Tls,
    acknowledgement: Acknowledgement,
}

/// Where the locks are.
#[derive(Debug, Clone)]
enum RedisTarget {
    /// In one server, with at most so many connections for commands, which `pool` opens if there is one.
    Server {
        max_size: usize,
        pool: Option<Pool>,
    },
    /// In the server that the sentinels name as this master.
    Sentinels(String),
    Cluster,
}

impl RedisStore {
    /// Connects to the server at `redis://…`, `rediss://…` (with the feature `redis-tls`) or `redis+unix://…`.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`], also for cancellation.
    pub async fn connect(address: impl IntoConnectionInfo) -> Result<Self, StoreError> {
        Self::builder(address).connect().await
    }

    /// A builder of a store for the server at `address`.
    pub fn builder(address: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder {
            address: address.into_connection_info().map_err(bad_address),
            others: Ok(Vec::new()),
            target: RedisTarget::Server {
                max_size: usize::MAX,
                pool: None,
            },
            channels: None,
            timeouts: Timeouts::default(),
            commands: CONNECTIONS,
            tls: Tls::default(),
            acknowledgement: Acknowledgement::default(),
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
    ///   calls fail with [`Transient`](crate::StoreErrorKind::Transient): waiting requests and releases try again. A
    ///   server that fails affects only the locks in its slots.
    /// * **Wake-ups** use the same channels as Redisson's; see [`sharded_channels`](RedisStoreBuilder::sharded_channels).
    /// * **A failover loses** changes that the new master did not have, as with sentinels: the holder gets
    ///   [`Lost`](crate::LockError::Lost), and no confirmation. With [`Replicas`] a change counts only after
    ///   acknowledgements.
    ///
    /// A restricted user needs more rights than for one server: [`AclRules::cluster`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let seeds = ["redis://locks:secret@10.0.0.1:7000", "redis://locks:secret@10.0.0.2:7000"];
    /// let store = RedisStore::cluster(seeds).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster<A: IntoConnectionInfo>(
        addresses: impl IntoIterator<Item = A>,
    ) -> RedisStoreBuilder {
        let seeds = infos(addresses);
        let none = || refused("a Cluster needs the address of one of its servers at least");
        let first = |seeds: &Vec<_>| seeds.first().cloned().ok_or_else(none);
        RedisStoreBuilder {
            address: seeds.as_ref().map_err(Clone::clone).and_then(first),
            others: seeds,
            target: RedisTarget::Cluster,
            ..Self::builder("redis://")
        }
    }

    /// A builder of a store from a configuration of [`deadpool_redis`]. The store keeps its connections, so of the settings of
    /// the pool only the largest size and the time limit for creation count.
    pub fn from_config(config: Config) -> RedisStoreBuilder {
        let PoolConfig {
            max_size, timeouts, ..
        } = config.get_pool_config();
        let mut builder = match (config.url, config.connection) {
            (Some(url), None) => Self::builder(url),
            (None, connection) => Self::builder(connection.unwrap_or_default()),
            (Some(_), Some(_)) => RedisStoreBuilder {
                address: Err(refused(
                    "the configuration has both `url` and `connection`: remove one",
                )),
                ..Self::builder("redis://")
            },
        };
        builder.target = RedisTarget::Server {
            max_size,
            pool: None,
        };
        match timeouts.create {
            Some(timeout) => builder.connect_timeout(timeout),
            None => builder,
        }
    }

    /// A builder of a store that takes its connections from `pool`, and keeps them.
    ///
    /// The target of a pool's connections is unknown, so `subscriptions` names the server for the connection for wake-ups:
    /// it must be the same server.
    ///
    /// The pool hands out, and counts, one connection for each that commands share, up to its largest size. What replaces
    /// such a connection later, and the connections for renewals, come from the pool's manager directly: the pool's hooks,
    /// such as `post_create`, do not see them, and a pool that is closed does not prevent them. Dropping the store ends all
    /// of them.
    pub fn from_pool(pool: Pool, subscriptions: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder {
            target: RedisTarget::Server {
                max_size: pool.status().max_size,
                pool: Some(pool),
            },
            ..Self::builder(subscriptions)
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
    /// calls fail with [`Transient`](crate::StoreErrorKind::Transient), so that waiting requests continue to wait; holds
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
    /// its holder still works: the holder's renewal or release returns [`Lost`](crate::LockError::Lost). [`Replicas`] can
    /// prevent that.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
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
    pub fn sentinel<A: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = A>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        let sentinels = infos(sentinels);
        // Sentinels with TLS name the servers' TLS ports.
        let servers = match &sentinels {
            Ok(sentinels) if sentinels.iter().any(is_encrypted) => "rediss://any",
            _ => "redis://any",
        };
        RedisStoreBuilder {
            others: sentinels,
            target: RedisTarget::Sentinels(master.into()),
            ..Self::builder(servers)
        }
    }
}

impl RedisStoreBuilder {
    /// Sets the settings of connections to the servers behind the sentinels: user, password, database, protocol and
    /// encryption of this address. Its host and port are ignored: `rediss://user:password@any/2`. Without it: no password,
    /// database 0, and encrypted if any of the sentinels' addresses is. The sentinels' own credentials are in their own
    /// addresses.
    ///
    /// For every other store these settings are in its address; if it has both, `connect` fails.
    pub fn servers(mut self, like: impl IntoConnectionInfo) -> Self {
        self.address = match self.target {
            RedisTarget::Sentinels(_) => like.into_connection_info().map_err(bad_address),
            _ => Err(refused(
                "`servers` is for sentinels: put credentials and database into the address",
            )),
        };
        self
    }

    /// Sets how long a command may take. The default is 3 seconds.
    ///
    /// After a sixth of that time, all connections to the server are probed. A connection is replaced if it does not answer
    /// within a third of the time (at least half a second) while a new connection does; the commands on it fail as
    /// unanswered.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout.min(FOR_EVER);
        self
    }

    /// Sets how long connecting may take, from the name lookup to the first answer. The default is 5 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout.min(FOR_EVER);
        self
    }

    /// Sets how many connections carry the commands, at least one. The default is 2; the largest size of a pool, or of the
    /// pool in a [configuration](RedisStore::from_config), limits it.
    /// The connections are kept as long as the store lives. Two more connections, outside a pool, are for wake-ups and
    /// for renewals; each is opened when it is first needed. In a Cluster, this holds for each server that has slots, from
    /// its first use.
    pub fn connections(mut self, connections: usize) -> Self {
        self.commands = connections.max(1);
        self
    }

    /// Sets whether releases are published on sharded channels: `SPUBLISH` and `SSUBSCRIBE` instead of `PUBLISH` and
    /// `SUBSCRIBE`. For a [Cluster](RedisStore::cluster) alone.
    ///
    /// Clients of both kinds exclude each other, but they do not get each other's messages, and find out by polling. The
    /// default is what Redisson does (`shardedSubscriptionMode` AUTO): sharded if the servers know it, which those of Redis
    /// 7 and Valkey do.
    pub fn sharded_channels(mut self, sharded: bool) -> Self {
        self.channels = Some(match sharded {
            true => Channels::Sharded,
            false => Channels::Plain,
        });
        self
    }

    /// Sets how many replicas must acknowledge a change before it counts. The default is [`Replicas::None`].
    pub fn replicas(mut self, replicas: Replicas) -> Self {
        self.acknowledgement.replicas = replicas;
        self
    }

    /// Sets how long replicas may take to acknowledge. This time is part of the caller's wait. The default is one second.
    ///
    /// Other commands on the connection wait meanwhile; their [`response_timeout`](Self::response_timeout) is extended by
    /// this time.
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.acknowledgement.within = timeout.min(FOR_EVER);
        self
    }

    /// Connects, and checks that the server answers.
    ///
    /// # Errors
    ///
    /// If the address cannot be used, the server cannot be reached, the password is wrong, or the server is still loading.
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
    /// If the address cannot be used.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        let settings = ConnectionSettings {
            timeouts: self.timeouts,
            acknowledgement: self.acknowledgement,
            background: Arc::default(),
            channels: Arc::new(match (&self.target, self.channels) {
                (RedisTarget::Cluster, None) => OnceLock::new(),
                (_, channels) => channels.unwrap_or(Channels::Plain).into(),
            }),
        };
        let inner = Arc::new(StoreInner {
            outside: Arc::default(),
            background: settings.background.clone(),
            acknowledging: self.acknowledgement.is_wanted(),
            router: Arc::new(self.router(settings)?),
        });
        Ok(RedisStore { inner })
    }

    fn router(self, settings: ConnectionSettings) -> Result<Router, StoreError> {
        if self.channels.is_some() && !matches!(self.target, RedisTarget::Cluster) {
            return Err(refused(
                "only a Cluster has sharded channels: use `RedisStore::cluster`, or leave the setting out",
            ));
        }
        let (address, others) = (self.address?, self.others?);
        let tls = self.tls.config(others.iter().chain([&address]))?;
        let endpoint = |address| Endpoint::new(address, tls.clone(), self.timeouts);
        let server = endpoint(address);
        let (connector, room) = match self.target {
            RedisTarget::Server { max_size, pool } => (Connector::Server(server, pool), max_size),
            RedisTarget::Sentinels(_) if others.is_empty() => {
                return Err(refused("name at least one sentinel"));
            }
            RedisTarget::Sentinels(master) => {
                let sentinels = others.into_iter().map(endpoint);
                let background = settings.background.clone();
                let group = WatchedSentinels::new(sentinels, master, server, background);
                (Connector::Sentinels(group), usize::MAX)
            }
            RedisTarget::Cluster => {
                let seeds = cluster::addresses(&others).map_err(refused)?;
                let factory = MemberFactory {
                    like: server,
                    connections: self.commands,
                    settings,
                };
                let cluster = Cluster::new(seeds, factory);
                return Ok(Router::Cluster(Arc::new(cluster)));
            }
        };
        match self.commands.min(room) {
            0 => Err(refused(
                "the pool has no room for a connection: raise its maximum size",
            )),
            connections => {
                let node = Node::new(connector, connections, settings);
                Ok(Router::One(Arc::new(node)))
            }
        }
    }
}

#[cfg(feature = "redis-tls")]
impl RedisStoreBuilder {
    /// Trusts the servers whose certificates these authorities have signed, and no others: one or more certificates, in
    /// PEM.
    ///
    /// Without it, a `rediss://` address is trusted if the operating system trusts it. The certificate must contain the
    /// host name, or the IP address, of the address. For servers that [sentinels](crate::RedisStore::sentinel) or [a
    /// Cluster](crate::RedisStore::cluster) name, it must contain that name. Connections of a pool that the caller has made
    /// have their own settings; these settings then apply to the connection for wake-ups.
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

fn infos<A: IntoConnectionInfo>(
    addresses: impl IntoIterator<Item = A>,
) -> Result<Vec<ConnectionInfo>, StoreError> {
    let addresses = addresses.into_iter().map(A::into_connection_info);
    addresses
        .map(|address| address.map_err(bad_address))
        .collect()
}

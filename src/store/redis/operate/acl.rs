//! The rights that a user needs, as rules of an access control list.

use std::collections::BTreeSet;
use std::fmt;

use crate::lock::Namespace;
use crate::store::redis::protocol::names;
use crate::store::redis::protocol::rights::SCRATCH;

/// The commands of a [`RedisStore`](crate::RedisStore).
const LOCKING: &str = "del eval evalsha exists get hdel hexists hget hgetall hlen hmget hrandfield hset lindex lpush \
    lrem persist pexpire ping pttl publish rename rpush set subscribe time unsubscribe zadd zcard \
    zcount zrange zrem zremrangebyscore zrevrange zscore";

/// The further commands of [`LockAdmin`](crate::LockAdmin).
const ADMINISTERING: &str = "lrange scan strlen zmscore zrangebyscore";

/// The further commands of [`LockClient::audit`](crate::LockClient::audit).
const AUDITING: &str = "config|get info";

/// The further commands of a store that waits for replicas.
const ACKNOWLEDGING: &str = "wait";

/// The further commands of a store in a Cluster.
const ROUTING: &str = "asking cluster|info cluster|slots spublish ssubscribe sunsubscribe";

/// The least rights that a Redis user needs, as rules of Redis's access control lists (6.2 or newer).
///
/// [`RedisStore::acl_rules`](crate::RedisStore::acl_rules) makes them; their text goes after the name and the password of the
/// user:
///
/// ```
/// use tower_distributed_lock::RedisStore;
///
/// let rules = RedisStore::acl_rules(["order:"]).admin();
/// let line = format!("ACL SETUSER locks reset on >password {rules}");
/// assert!(line.contains(" ~order:* ") && line.contains(" +pexpire "));
/// ```
///
/// An address with the number of a database needs `+select` as well.
#[derive(Debug, Clone)]
pub struct AclRules {
    prefixes: Vec<String>,
    commands: BTreeSet<&'static str>,
    keys: Vec<&'static str>,
    /// Whether the entries of processes are among them.
    processes: bool,
}

impl AclRules {
    pub(crate) fn new(prefixes: Vec<String>) -> Self {
        Self {
            prefixes,
            commands: LOCKING.split(' ').collect(),
            keys: names::KEYS.into(),
            processes: false,
        }
    }

    /// For clients with this [name space](crate::client::LockClientBuilder::namespace), which stands before each of the prefixes.
    ///
    /// ```
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let rules = RedisStore::acl_rules(["lock:", "idempotency:"]).namespace("prod-shop");
    /// assert!(rules.to_string().contains(" ~prod-shop:lock:* "));
    /// ```
    ///
    /// # Panics
    ///
    /// Where [`LockClientBuilder::build`](crate::client::LockClientBuilder::build) does.
    #[must_use]
    pub fn namespace(mut self, name: impl AsRef<str>) -> Self {
        let namespace = Namespace::new(name.as_ref()).unwrap_or_else(|reason| {
            panic!("these `AclRules` have no proper `namespace`: {reason}");
        });
        for prefix in &mut self.prefixes {
            prefix.insert_str(0, namespace.prefix());
        }
        self
    }

    /// Adds the rights of [`LockAdmin`](crate::LockAdmin), to show holders with their processes and waiters, and to list
    /// keys. `SCAN` shows the names of all keys of the database.
    #[must_use]
    pub fn admin(self) -> Self {
        self.announce().and(ADMINISTERING)
    }

    /// Adds the rights of a client that [announces](crate::client::LockClientBuilder::announce) its process. The entries of all
    /// processes are in the same keys, `tower_lock_process:<client id>`, whatever the name space.
    #[must_use]
    pub fn announce(mut self) -> Self {
        self.processes = true;
        self
    }

    /// Adds the rights of a store [in a Cluster](crate::RedisStore::cluster).
    ///
    /// Redis 6.2 does not know `+spublish`, `+ssubscribe` and `+sunsubscribe`, and refuses a user with them: there, leave
    /// these three out of [`iter`](Self::iter). Before such a Cluster is upgraded, set
    /// [`sharded_channels(false)`](crate::store::redis::RedisStoreBuilder::sharded_channels) until each server has them: a store uses sharded
    /// channels on a server from version 7 on.
    #[must_use]
    pub fn cluster(self) -> Self {
        self.and(ROUTING)
    }

    /// Adds the rights of a store that [waits for replicas](crate::store::redis::RedisStoreBuilder::replicas).
    #[must_use]
    pub fn replicas(mut self) -> Self {
        self.keys.push(names::MARK);
        self.and(ACKNOWLEDGING)
    }

    /// Adds the rights of a complete [`LockClient::audit`](crate::LockClient::audit). `CONFIG GET` shows passwords in the
    /// server's configuration. A user of [sentinels](crate::RedisStore::sentinel) needs `+sentinel` there.
    #[must_use]
    pub fn audit(self) -> Self {
        self.and(AUDITING)
    }

    fn and(mut self, commands: &'static str) -> Self {
        self.commands.extend(commands.split(' '));
        self
    }

    /// The rules, one by one.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        // Redis 6.2 gives a new user every channel, and then accepts no pattern.
        let mut rules = vec!["resetchannels".to_owned()];
        if self.prefixes.iter().any(String::is_empty) {
            // Redis accepts no pattern after the one for everything.
            rules.extend(patterns("", &self.keys));
        } else {
            let patterns = |prefix: &String| patterns(prefix, &self.keys);
            rules.extend(self.prefixes.iter().flat_map(patterns));
            // The key and the channels of the check.
            rules.push(format!("~{SCRATCH}"));
            rules.extend(self.processes.then(|| format!("~{}*", names::PROCESS)));
            let channels = names::CHANNELS.iter();
            rules.extend(channels.map(|before| format!("&{before}{{{SCRATCH}}}")));
        }
        rules.extend(self.commands.iter().map(|command| format!("+{command}")));
        rules.into_iter()
    }
}

impl fmt::Display for AclRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.iter().collect();
        f.write_str(&rules.join(" "))
    }
}

/// The keys and channels of the locks whose names begin with `prefix`.
fn patterns(prefix: &str, keys: &[&str]) -> Vec<String> {
    let channels = |rest: &str| {
        let channels = names::CHANNELS.iter();
        channels
            .map(move |before| format!("&{before}{rest}"))
            .collect()
    };
    if prefix.is_empty() {
        return [vec!["~*".to_owned()], channels("*")].concat();
    }
    // A rule must not contain blanks, but a pattern may match them.
    let is_blank = |c: char| c.is_ascii_whitespace() || c == '\0' || c == '\x0b';
    let escaped = names::literally(prefix).replace(is_blank, "?");
    let mut patterns = vec![format!("~{escaped}*")];
    // Redisson's rule: see `Name`.
    let tagged = match prefix.contains('{') {
        true => format!("{escaped}*"),
        false => {
            patterns.push(format!("~{{{escaped}*"));
            format!("{{{escaped}*")
        }
    };
    // The scripts get Redisson's channels as keys, so that a Cluster finds them in the slot of the lock.
    let theirs = names::CHANNELS
        .iter()
        .filter(|channel| channel.starts_with("redisson"));
    patterns.extend(
        keys.iter()
            .chain(theirs)
            .map(|before| format!("~{before}{tagged}")),
    );
    patterns.extend::<Vec<_>>(channels(&tagged));
    patterns
}

#[cfg(test)]
mod tests;

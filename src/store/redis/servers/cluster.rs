//! Locks in a Redis Cluster: each on the server that serves its slot.
//!
//! A command is sent again only if a server answered that it was not executed, or if it was never sent. The cluster connection of the
//! `redis` crate cannot be used (redis-rs 1.8, `cluster_handling/async_connection`):
//!
//! * It repeats a command after a broken connection, up to 16 times (`choose_response` in `request.rs`: `RetryMethod::Reconnect`), and
//!   an acquire must not be repeated without the caller's knowledge. `retries(0)` ends that, but also `MOVED`, `ASK` and `TRYAGAIN`.
//! * A refresh of the slots holds the lock of all connections while it pings every server (`refresh_slots`), so that one server that
//!   hangs delays the locks of all others.
//! * `ASKING` and its command are two messages, so that the command of another task may take the permission.
//! * If the server of a slot is down, it asks a replica or another server.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::Value;

mod map;
mod redirect_loop;
mod topology;

use super::node::Node;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::Wakeups;
use crate::store::redis::link::Purpose;
use crate::store::redis::link::wire::Wire;
use crate::store::redis::protocol::channels::Channels;
use crate::store::redis::protocol::failure::{self, refused, transient};
use crate::store::redis::protocol::names::Names;
use crate::store::redis::protocol::script::Call;
use crate::store::redis::protocol::slot::Slot;
use redirect_loop::RedirectLoop;
pub(crate) use topology::Cluster;

impl Cluster {
    /// Checks that the Cluster answers.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        self.map().await?;
        self.channels().await.map(drop)
    }

    /// The kind of channels.
    pub(crate) async fn channels(self: &Arc<Self>) -> Result<Channels, StoreError> {
        let settings = &self.settings;
        match settings.channels.known() {
            (Some(kind), false) => Ok(kind),
            (Some(kind), true) => {
                // No caller waits for the answers: a server that hangs concerns its own slots only.
                let cluster = self.clone();
                let asking = async move {
                    // The answer may come with the next call, unless the user may not ask.
                    let asked = cluster.ask_for_channels().await;
                    if asked.is_err_and(|error| !error.is_final()) {
                        cluster.settings.channels.doubt();
                    }
                };
                settings.background.spawn(asking).detach();
                Ok(kind)
            }
            // Boxed, so that the future of a call is small. The first callers ask each for itself: none waits for another, whose
            // future may not be polled.
            (None, _) => Box::pin(self.ask_for_channels()).await,
        }
    }

    /// Asks every master. If the kind has changed, all subscriptions begin again.
    async fn ask_for_channels(self: &Arc<Self>) -> Result<Channels, StoreError> {
        let map = self.map().await?;
        let answers = map.masters.iter().map(|node| shards_channels(node));
        let kind = agreed(join_all(answers).await)?;
        if self.settings.channels.set(kind) {
            for node in &map.masters {
                node.subscriptions.begin_again();
            }
        }
        Ok(kind)
    }

    /// Every server that has slots, in the order of their addresses.
    pub(crate) async fn servers(self: &Arc<Self>) -> Result<Vec<(String, Arc<Node>)>, StoreError> {
        let map = self.map().await?;
        let servers = map.masters.iter();
        let servers = servers.map(|node| (node.address.to_string(), node.clone()));
        let mut servers: Vec<_> = servers.collect();
        servers.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(servers)
    }

    /// Calls a script on the server that has the key's slot.
    pub(crate) async fn call(
        self: &Arc<Self>,
        purpose: Purpose,
        key: &LockKey,
        call: &Call,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
        let mut redirects = RedirectLoop::new(self, slot_of(key)?).await?;
        loop {
            let target = redirects.next().await?;
            let connection = target.node.connection(purpose, key);
            match connection.answer(call, target.asking).await {
                Ok((Value::ServerError(error), _)) => redirects.redirect(&target, error).await?,
                Ok(answered) => return Ok(answered),
                Err(error) => redirects.failure(&target, error).await?,
            }
        }
    }

    /// Subscribes to a channel of a key, on the server that has its slot. The subscription is over when the slot has another
    /// server: the former one ends it if the channel is sharded, and in any case the next map does.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        key: &LockKey,
        channel: String,
    ) -> Result<Wakeups, StoreError> {
        let slot = slot_of(key)?;
        self.channels().await?;
        let mut redirects = RedirectLoop::new(self, slot).await?;
        loop {
            let target = redirects.next().await?;
            let subscriptions = &target.node.subscriptions;
            let listening = subscriptions.listen(channel.clone()).await;
            // A map that came before the subscription has not ended it.
            let map = self.known();
            let error = match listening {
                Ok(wakeups) if map.is_some_and(|map| map.is_master(slot, &target.node)) => {
                    return Ok(wakeups);
                }
                Ok(_) => transient("the slot has moved meanwhile"),
                Err(error) => error,
            };
            match redirects.failure(&target, error).await {
                // The server does not serve the slot any more, and the others do not know yet which one does.
                Err(error) if error.kind() == StoreErrorKind::Transient => {
                    redirects.backoff.pause().await;
                }
                taken_in => taken_in?,
            }
        }
    }

    /// The number of the server that has the key's slot, as far as this process knows: the first slot that the server has, which
    /// stays when a replica takes over.
    pub(crate) fn partition(&self, key: &LockKey) -> u16 {
        let slot = Slot::of(key.as_str());
        self.known().map_or(0, |map| map.first_with(slot))
    }

    /// The server that has the key's slot, as far as this process knows.
    pub(crate) fn known_node(&self, key: &LockKey) -> Option<Arc<Node>> {
        let map = self.known()?;
        map.master(Slot::of(key.as_str())).cloned()
    }
}

/// Whether the server knows sharded channels. It asks in the same way as Redisson (PROTOCOL 1.9).
async fn shards_channels(node: &Node) -> Result<bool, StoreError> {
    let question = redis::cmd("PUBSUB").arg("SHARDNUMSUB").to_owned();
    knows_the_command(node.first(Purpose::Commands).query(&question).await?)
}

/// Fails if the answer does not say it, as that of a server which is busy, or which forbids the command.
fn knows_the_command(answer: Value) -> Result<bool, StoreError> {
    let Value::ServerError(error) = answer else {
        return Ok(true);
    };
    let is_general = error.code() == "ERR";
    let refusal = failure::refusal(error);
    match refusal.kind() {
        StoreErrorKind::Refused if is_general => Ok(false),
        _ => Err(refusal),
    }
}

/// Whether all servers know sharded channels. A server that does not would fail in the middle of a script. One that is down is assumed
/// to be like the others.
fn agreed(answers: Vec<Result<bool, StoreError>>) -> Result<Channels, StoreError> {
    let (mut known, mut failure) = (false, None);
    for answer in answers {
        match answer {
            Ok(true) => known = true,
            Ok(false) => return Ok(Channels::Plain),
            Err(error) => failure = Some(failure::more_telling(failure, error)),
        }
    }
    match failure {
        Some(failure) if !known => Err(failure),
        _ => Ok(Channels::Sharded),
    }
}

/// The slot of all names of the key. Fails if they have different slots.
fn slot_of(key: &LockKey) -> Result<Slot, StoreError> {
    Names::of(key).share_a_slot().map_err(refused)?;
    Ok(Slot::of(key.as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::topology::tests::cluster;
    use super::*;
    use crate::store::redis::link::address::Address;

    /// All servers are upgraded, and do not answer in between.
    #[tokio::test]
    async fn a_kind_of_channels_that_could_not_be_asked_for_stays_in_doubt() {
        let nowhere = Address::new("127.0.0.1", 1);
        let cluster = cluster(&nowhere, [nowhere.clone()]);
        let kind = cluster.settings.channels.clone();
        kind.set(Channels::Plain);
        kind.doubt();
        assert_eq!(cluster.channels().await.unwrap(), Channels::Plain);
        let in_doubt = async {
            while kind.known() != (Some(Channels::Plain), true) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_secs(60);
        timeout(limit, in_doubt).await.expect("the next call asks");
    }

    fn answer(error: &str) -> Value {
        let parsed = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
        parsed.expect("an answer of Redis")
    }

    #[test]
    fn only_a_server_that_does_not_know_the_command_has_no_sharded_channels() {
        for unknown in [
            "ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'. Try PUBSUB HELP.",
            "ERR unknown subcommand 'SHARDNUMSUB'. Try PUBSUB HELP.",
        ] {
            assert!(!knows_the_command(answer(unknown)).expect("it answers"));
        }
        for other in [
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
            "ERR max number of clients reached",
            "NOPERM User default has no permissions to run the 'pubsub|shardnumsub' command",
        ] {
            assert!(knows_the_command(answer(other)).is_err(), "{other}");
        }
        assert!(knows_the_command(Value::Array(Vec::new())).expect("it answers"));
    }
}

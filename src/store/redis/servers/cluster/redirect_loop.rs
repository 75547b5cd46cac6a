//! Where to send a command until a server executes it: the errors with which a server of a Cluster refuses it say so.

use std::sync::Arc;
use std::time::Duration;

use redis::ServerError;

use super::map::SlotMap;
use super::topology::{Cluster, Doubt};
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::link::address::Address;
use crate::store::redis::protocol::failure::{refusal, transient};
use crate::store::redis::protocol::slot::Slot;
use crate::store::redis::servers::node::Node;

/// How often a command is sent at most. Each repeat follows an answer that it was not executed.
const TRIES: u32 = 8;

/// The pauses before a command is sent again to a server that cannot serve it now.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));

/// Where to send a command about a slot, after the answers of the servers so far.
pub(super) struct RedirectLoop<'a> {
    cluster: &'a Arc<Cluster>,
    slot: Slot,
    map: Arc<SlotMap>,
    redirected: Option<RedirectTarget>,
    pub(super) backoff: Backoff,
    tries: u32,
    /// The last redirection.
    refusal: Option<ServerError>,
}

/// The server to which the command is sent.
pub(super) struct RedirectTarget {
    pub(super) node: Arc<Node>,
    /// The slot is being moved to this server: the command needs `ASKING` before it.
    pub(super) asking: bool,
}

impl<'a> RedirectLoop<'a> {
    pub(super) async fn new(cluster: &'a Arc<Cluster>, slot: Slot) -> Result<Self, StoreError> {
        Ok(Self {
            cluster,
            slot,
            map: cluster.map().await?,
            redirected: None,
            backoff: BACKOFF,
            tries: 0,
            refusal: None,
        })
    }

    /// The next server to send the command to. Fails after [`TRIES`].
    pub(super) async fn next(&mut self) -> Result<RedirectTarget, StoreError> {
        if self.tries == TRIES {
            return Err(match self.refusal.take() {
                Some(error) => transient(error),
                None => transient("the Cluster is being rearranged"),
            });
        }
        self.tries += 1;
        if let Some(target) = self.redirected.take() {
            return Ok(target);
        }
        if self.map.master(self.slot).is_none() {
            self.map = self.newer(None, false).await?;
        }
        match self.map.master(self.slot).cloned() {
            Some(node) => Ok(RedirectTarget {
                node,
                asking: false,
            }),
            None => Err(transient(
                "no server of the Cluster serves the slot of the key",
            )),
        }
    }

    /// Takes in the error of a server that has not executed the command. Returns it if another server would not execute the
    /// command either.
    pub(super) async fn redirect(
        &mut self,
        from: &RedirectTarget,
        error: ServerError,
    ) -> Result<(), StoreError> {
        let address = || Address::read(error.details()?.split(' ').nth(1)?, &from.node.address);
        match (error.code(), address()) {
            ("MOVED", Some(address)) => {
                self.refresh(&address, true).await?;
                // The new map is older than the state of this server.
                if self.map.is_master(self.slot, &from.node) {
                    self.redirected = Some(self.target(&address, false));
                }
            }
            // The slot is being moved to this server, which may have the key.
            ("ASK", Some(address)) => self.redirected = Some(self.target(&address, true)),
            // Some of the keys have moved and some have not.
            ("TRYAGAIN", _) => self.backoff.pause().await,
            // The server is cut off, or is not a master any more.
            ("CLUSTERDOWN" | "READONLY" | "MASTERDOWN", _) => {
                self.backoff.pause().await;
                self.refresh(&from.node.address, false).await?;
            }
            _ => return Err(refusal(error)),
        }
        self.refusal = Some(error);
        Ok(())
    }

    /// Takes in a failure: the command was not sent, or not answered. Returns an error if it must not, or cannot, be
    /// sent elsewhere.
    pub(super) async fn failure(
        &mut self,
        at: &RedirectTarget,
        error: StoreError,
    ) -> Result<(), StoreError> {
        use StoreErrorKind::{Refused, Transient, Unreachable};
        if !matches!(error.kind(), Unreachable | Transient | Refused) {
            return Err(error);
        }
        // No connection to this server can be used. The Cluster may have replaced it, and another server may have its address.
        let Ok(newer) = self.newer(Some(&at.node.address), false).await else {
            return Err(error);
        };
        let former = self.map.master(self.slot).cloned();
        self.map = newer;
        let stays = |node| self.map.is_master(self.slot, node);
        match error.kind() {
            // TLS will refuse it the next time as well, although another server still names it.
            Refused if former.as_ref().is_some_and(stays) => Err(error),
            Refused => Ok(()),
            // No other server has taken over yet; the rest of the Cluster answers.
            _ if stays(&at.node) => Err(transient(error)),
            _ => Ok(()),
        }
    }

    async fn refresh(&mut self, about: &Address, is_owner: bool) -> Result<(), StoreError> {
        // This server has just answered, so the Cluster as a whole cannot serve.
        let newer = self.newer(Some(about), is_owner).await;
        self.map = newer.map_err(transient)?;
        Ok(())
    }

    async fn newer(
        &self,
        about: Option<&Address>,
        is_owner: bool,
    ) -> Result<Arc<SlotMap>, StoreError> {
        let doubt = Doubt {
            seen: self.map.clone(),
            about: about.cloned(),
            is_owner,
        };
        self.cluster.newer(Some(doubt)).await
    }

    fn target(&self, address: &Address, asking: bool) -> RedirectTarget {
        let node = self.cluster.node(address);
        RedirectTarget { node, asking }
    }
}

//! The way of one command to the server that executes it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::map::Map;
use super::node::Node;
use super::redirect::Redirect;
use super::slots::Address;
use super::topology::{Doubt, Topology};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::slot::Slot;

/// The pause before a command is sent again to a server that cannot serve it just now; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Where to send a command about a slot, as far as the servers have said so far.
pub(super) struct Way<'a> {
    topology: &'a Arc<Topology>,
    slot: Slot,
    map: Arc<Map>,
    detour: Option<Stop>,
    pause: Duration,
}

/// A server to send it to.
pub(super) struct Stop {
    pub(super) node: Arc<Node>,
    /// It is about to be given the slot, and has to be told that this is known.
    pub(super) asking: bool,
}

impl<'a> Way<'a> {
    pub(super) async fn new(topology: &'a Arc<Topology>, slot: Slot) -> Result<Self, StoreError> {
        Ok(Self {
            topology,
            slot,
            map: topology.map().await?,
            detour: None,
            pause: FIRST_PAUSE,
        })
    }

    /// Where to send it next.
    pub(super) async fn next(&mut self) -> Result<Stop, StoreError> {
        if let Some(detour) = self.detour.take() {
            return Ok(detour);
        }
        let node;
        (self.map, node) = self.topology.master(self.map.clone(), self.slot).await?;
        Ok(Stop {
            node,
            asking: false,
        })
    }

    /// The server has not executed it, and says where or when that may be.
    pub(super) async fn redirect(
        &mut self,
        from: &Stop,
        redirect: Redirect,
    ) -> Result<(), StoreError> {
        match redirect {
            Redirect::Moved(address) => {
                self.learn(Doubt::Moved(address.clone())).await?;
                // The new map is older than what this server knows.
                if self.map.is_master(self.slot, &from.node) {
                    self.detour = Some(self.stop(&address, false)?);
                }
            }
            Redirect::Ask(address) => self.detour = Some(self.stop(&address, true)?),
            Redirect::Later => self.rest().await,
            Redirect::Elsewhere => {
                self.rest().await;
                self.learn(Doubt::Failed(from.node.address.clone())).await?;
            }
        }
        Ok(())
    }

    /// It could not be sent, or was not answered. An error if it must not, or cannot, be sent elsewhere.
    pub(super) async fn failure(&mut self, at: &Stop, error: StoreError) -> Result<(), StoreError> {
        let error = at.node.named(error);
        let doubt = Doubt::Failed(at.node.address.clone());
        match error.kind() {
            StoreErrorKind::Unreachable | StoreErrorKind::Transient | StoreErrorKind::Refused => {
                self.unusable(at, doubt, error).await
            }
            StoreErrorKind::Unanswered => {
                self.topology.doubt(&self.map, doubt);
                Err(error)
            }
            _ => Err(error),
        }
    }

    /// There is no connection to this server that can be used. It may have been replaced, and may be a stranger by now.
    async fn unusable(
        &mut self,
        at: &Stop,
        doubt: Doubt,
        error: StoreError,
    ) -> Result<(), StoreError> {
        let Ok(newer) = self.topology.newer(&self.map, doubt).await else {
            return Err(error);
        };
        let former = self.map.master(self.slot).cloned();
        self.map = newer;
        let stays = |node| self.map.is_master(self.slot, node);
        match error.kind() {
            // Nor will it be trusted when it is asked again, though another one goes on naming it.
            StoreErrorKind::Refused if former.as_ref().is_some_and(stays) => Err(error),
            StoreErrorKind::Refused => Ok(()),
            // Nobody has taken over yet; the others are there.
            _ if stays(&at.node) => Err(StoreError::new(StoreErrorKind::Transient, error)),
            _ => Ok(()),
        }
    }

    async fn learn(&mut self, doubt: Doubt) -> Result<(), StoreError> {
        // The server that has just answered is there: it is the Cluster that cannot serve.
        let newer = self.topology.newer(&self.map, doubt).await;
        self.map = newer.map_err(|error| StoreError::new(StoreErrorKind::Transient, error))?;
        Ok(())
    }

    fn stop(&self, address: &Address, asking: bool) -> Result<Stop, StoreError> {
        let node = self.topology.node(address)?;
        Ok(Stop { node, asking })
    }

    async fn rest(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

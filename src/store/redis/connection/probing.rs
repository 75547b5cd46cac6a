//! Probes a connection, and replaces it if it is dead.

use std::pin::pin;
use std::sync::Arc;

use super::super::live::Live;
use super::{LinkState, NewConnection, SharedConnection, is_running};
use crate::error::StoreError;

impl SharedConnection {
    /// Probes this connection. Called when a command got no answer on it, or on another one to the same server.
    pub(super) fn probe(self: &Arc<Self>) {
        let mut state = self.state();
        let LinkState::Up(live) = &state.link else {
            return;
        };
        if state.closed || is_running(&state.probing) {
            return;
        }
        if let Some(runtime) = self.runtime() {
            let probing = self.clone().find_out(live.clone());
            state.probing = Some(runtime.spawn(probing));
        }
    }

    async fn find_out(self: Arc<Self>, live: Arc<Live>) {
        let ping = redis::cmd("PING");
        let mut handle = live.handle();
        let mut answer = pin!(handle.send_packed_command(&ping));
        let patience = self.timeouts.probe() + self.waits.delay();
        let another = async {
            tokio::time::sleep(patience).await;
            // The pool may have no permit for a second connection.
            self.state().place = None;
            self.open().await
        };
        let reason = "its server does not answer on it";
        tokio::select! {
            biased;
            answered = &mut answer => {
                if answered.is_err() {
                    self.replace(live.generation, "it broke");
                }
            }
            another = another => match another {
                Ok(opened) => self.exchange(&live, opened, reason),
                Err(error) => self.give_up(&live, error),
            },
        }
    }

    /// Installs the connection that answers in place of the one that does not.
    fn exchange(self: &Arc<Self>, live: &Live, opened: NewConnection, reason: &'static str) {
        {
            let state = self.state();
            if state.generation != live.generation || !matches!(state.link, LinkState::Up(_)) {
                return;
            }
            tracing::warn!(reason, "a connection to Redis is replaced");
        }
        self.install(opened);
        live.give_up();
    }

    /// Gives the connection up: the server answers on no connection.
    fn give_up(self: &Arc<Self>, live: &Live, error: StoreError) {
        let mut state = self.state();
        if state.generation == live.generation && matches!(state.link, LinkState::Up(_)) {
            tracing::warn!(%error, "a connection to Redis is replaced");
            state.link = LinkState::Down(error);
            self.ensure_reconnecting(&mut state);
        }
        drop(state);
        live.give_up();
    }
}

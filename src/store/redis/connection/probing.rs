//! Probes a connection, and replaces it if it is dead.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::live::Live;
use super::{BoundedTask, LinkState, NewConnection, SharedConnection, is_running};
use crate::error::StoreError;

impl SharedConnection {
    /// Probes this connection. Called when a command got no answer on it, or on another one to the same server.
    pub(super) fn probe(self: &Arc<Self>) {
        let mut state = self.state();
        let LinkState::Up(live) = &state.link else {
            return;
        };
        if is_running(&state.probing) {
            return;
        }
        if let Some(runtime) = self.runtime() {
            let probing = self.clone().find_out(live.clone());
            let longest = self.probe_limit() + self.context.timeouts().connect;
            state.probing = Some(BoundedTask {
                task: AbortOnDropHandle::new(runtime.spawn(probing)),
                until: Instant::now() + longest + BoundedTask::LATE,
            });
        }
    }

    async fn find_out(self: Arc<Self>, live: Arc<Live>) {
        let ping = redis::cmd("PING");
        let mut handle = live.raw.handle.clone();
        let mut answer = pin!(handle.send_packed_command(&ping));
        let another = async {
            tokio::time::sleep(self.probe_limit()).await;
            self.open(true).await
        };
        tokio::select! {
            biased;
            answered = &mut answer => {
                if answered.is_err() {
                    self.replace(live.generation, "it broke");
                }
            }
            another = another => self.give_up(&live, another),
        }
    }

    /// How long a probe waits for its answer.
    fn probe_limit(&self) -> Duration {
        self.context.timeouts().probe() + self.context.waits.delay()
    }

    /// Gives the connection up, and installs the one that answers instead; an error means that the server answers on none, or that
    /// another server is the master.
    fn give_up(self: &Arc<Self>, live: &Live, another: Result<NewConnection, StoreError>) {
        let mut state = self.state();
        if state.generation == live.generation && matches!(state.link, LinkState::Up(_)) {
            let error = another.as_ref().err().map(tracing::field::display);
            tracing::warn!(
                error,
                reason = "its server does not answer on it",
                "a connection to Redis is replaced"
            );
            match another {
                Ok(opened) => self.install_in(&mut state, opened),
                Err(error) => {
                    state.link = LinkState::Down(error);
                    self.ensure_reconnecting(&mut state);
                }
            }
        }
        drop(state);
        self.settled.notify_waiters();
        live.given_up.cancel();
    }
}

//! Opens another connection when one breaks.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::live::Live;
use super::super::sentinel::FollowedMaster;
use super::{
    BoundedTask, ConnectionState, LinkState, NewConnection, Purpose, SharedConnection, is_running,
};
use crate::backoff::Backoff;
use crate::sync::Mutex;
use crate::telemetry;

impl SharedConnection {
    pub(super) fn ensure_reconnecting(self: &Arc<Self>, state: &mut ConnectionState) {
        if matches!(state.link, LinkState::Closed) || is_running(&state.reconnecting) {
            return;
        }
        // Without a runtime, the next caller starts the task.
        if let Some(runtime) = self.runtime() {
            let reconnecting = runtime.spawn(self.clone().reconnect());
            state.reconnecting = Some(BoundedTask {
                task: AbortOnDropHandle::new(reconnecting),
                until: self.next_attempt_until(),
            });
        }
    }

    /// The runtime that drives the connection and its tasks. Renewals and commands never share one. Subscriptions continue on the
    /// store's thread when the runtime of a caller has ended, or is not driven.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let background = &self.context.settings.background;
        match self.purpose {
            Purpose::Commands if self.on_push.is_some() => Handle::try_current().ok(),
            Purpose::Commands => background.callers_runtime(),
            Purpose::Renewals => background.runtime().or_else(|| Handle::try_current().ok()),
        }
    }

    async fn reconnect(self: Arc<Self>) {
        let mut backoff = Backoff::STORE;
        loop {
            match self.open(true).await {
                Ok(opened) => {
                    self.install(opened);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis");
                    telemetry::store::failed(self.carries());
                    let mut state = self.state();
                    if matches!(state.link, LinkState::Connecting | LinkState::Down(_)) {
                        state.link = LinkState::Down(error);
                    }
                    if let Some(reconnecting) = &mut state.reconnecting {
                        reconnecting.until = self.next_attempt_until();
                    }
                    drop(state);
                    self.settled.notify_waiters();
                }
            }
            backoff.pause().await;
        }
    }

    /// By when the next attempt to connect has ended.
    fn next_attempt_until(&self) -> Instant {
        Instant::now() + Backoff::LONGEST + self.context.timeouts().connect + BoundedTask::LATE
    }

    pub(super) fn install(self: &Arc<Self>, opened: NewConnection) {
        let mut state = self.state();
        if !matches!(state.link, LinkState::Closed) {
            self.install_in(&mut state, opened);
        }
        drop(state);
        self.settled.notify_waiters();
    }

    /// The caller notifies those that wait for it when the mutex is unlocked: wakers are code outside this crate.
    pub(super) fn install_in(
        self: &Arc<Self>,
        state: &mut ConnectionState,
        NewConnection {
            raw,
            answer,
            master,
        }: NewConnection,
    ) {
        state.generation += 1;
        if state.generation > 1 {
            self.context.settings.channels.doubt();
        }
        state.since = Instant::now();
        let server = master.as_ref().map(|followed| followed.master.address());
        state.following = master.map(|followed| self.follow(state.generation, followed));
        let waits = match self.on_push {
            None => self.context.waits.begin(&raw.handle, server, &answer),
            Some(_) => None,
        };
        state.link = LinkState::Up(Arc::new(Live {
            raw,
            generation: state.generation,
            given_up: CancellationToken::new(),
            waits,
            loaded: Mutex::default(),
            _up: telemetry::store::connected(self.carries()),
        }));
        state.reconnecting = None;
    }

    fn follow(
        self: &Arc<Self>,
        generation: u64,
        mut master: FollowedMaster,
    ) -> AbortOnDropHandle<()> {
        let connection = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            if master.replaced().await
                && let Some(connection) = connection.upgrade()
            {
                connection.replace(generation, "another server is the master");
            }
        });
        AbortOnDropHandle::new(task)
    }
}

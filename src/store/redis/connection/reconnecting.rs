//! Opens the connection, and opens another one when it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::live::Live;
use super::super::master::MasterChanged;
use super::super::pooled::{Purpose, Taken};
use super::super::role::Role;
use super::{
    ConnectionState, LONGEST_PAUSE, LinkState, NewConnection, SharedConnection, greeting,
    is_running,
};
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::telemetry;

/// The pauses between attempts to connect.
const RECONNECT: Backoff = Backoff::new(Duration::from_millis(20), LONGEST_PAUSE);

impl SharedConnection {
    pub(super) fn ensure_reconnecting(self: &Arc<Self>, state: &mut ConnectionState) {
        if state.closed || is_running(&state.reconnecting) {
            return;
        }
        // Without a runtime, the next caller starts the task.
        if let Some(runtime) = self.runtime() {
            state.reconnecting = Some(runtime.spawn(self.clone().reconnect()));
        }
    }

    /// The runtime that drives the connection and its tasks. Renewals and commands never share one.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let background = &self.server.settings.background;
        match self.purpose {
            Purpose::Commands => background.callers_runtime(),
            Purpose::Renewals => background.runtime().or_else(|| Handle::try_current().ok()),
        }
    }

    async fn reconnect(self: Arc<Self>) {
        let mut backoff = RECONNECT;
        loop {
            match self.open(true).await {
                Ok(opened) => {
                    self.install(opened);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis");
                    telemetry::store::failed(self.purpose.as_str());
                    self.state().link = LinkState::Down(error);
                    self.settled.notify_waiters();
                }
            }
            backoff.pause().await;
        }
    }

    pub(super) fn install(self: &Arc<Self>, opened: NewConnection) {
        let mut state = self.state();
        if !state.closed {
            self.install_in(&mut state, opened);
        }
    }

    pub(super) fn install_in(
        self: &Arc<Self>,
        state: &mut ConnectionState,
        NewConnection { taken, answer }: NewConnection,
    ) {
        let Taken {
            raw,
            master_changed,
        } = taken;
        state.generation += 1;
        state.since = Instant::now();
        if let Some(former) = state.following.take() {
            former.abort();
        }
        if let Some(master) = master_changed.master() {
            let known = state.master.as_ref();
            if known.is_none_or(|known| !known.is_at(master)) {
                state.server += 1;
            }
            state.master = Some(master.clone());
            state.following = Some(self.follow(state.generation, master_changed));
        }
        let up = telemetry::store::connected(self.purpose.as_str());
        let live = Live::new(raw, state.generation, state.server, up);
        state.link = LinkState::Up(Arc::new(live));
        state.reconnecting = None;
        // An error is ignored: each call checks the answer again.
        let _ = self.waits.saw(state.server, &answer);
        self.settled.notify_waiters();
    }

    fn follow(self: &Arc<Self>, generation: u64, mut changed: MasterChanged) -> JoinHandle<()> {
        let connection = Arc::downgrade(self);
        tokio::spawn(async move {
            changed.wait().await;
            if let Some(connection) = connection.upgrade() {
                connection.replace(generation, "another server is the master");
            }
        })
    }

    /// Opens a connection and checks that it can be used. One that cannot be used carries no command: a user who may
    /// write but not expire would take locks that never end. A replica may be promoted, and refuses commands until then:
    /// `or_replica` accepts it.
    pub(super) async fn open(&self, or_replica: bool) -> Result<NewConnection, StoreError> {
        let connector = &self.server.connector;
        // Boxed: a caller that may connect, which is seldom, has a small future.
        let opening = Box::pin(async {
            let mut taken = connector.take(self.purpose, &self.permit).await?;
            let greeting = self.waits.greeting();
            let answer = greeting::ask(&mut taken.raw.handle, &greeting).await;
            let (answer, role) = match answer {
                Err(error) => return Err(connector.late_refusal(error).await),
                Ok(answer) => answer,
            };
            if let Some(role) = role
                && !(or_replica && role == Role::Replica)
            {
                connector.expect(role)?;
            }
            greeting::check_rights(&mut taken.raw.handle).await?;
            Ok(NewConnection { taken, answer })
        });
        self.server.in_time(opening).await
    }
}

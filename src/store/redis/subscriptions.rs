//! The channels that a store listens to, and what the server knows of them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::channels::Channels;
use super::connector::Connector;
use super::suspicion::Suspicion;
use super::thread::ConnectionThread;
use super::timeouts::Timeouts;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Wakeups;
use crate::sync::{Mutex, MutexGuard};

/// The subscriptions of one store: one connection, opened for the first of them, and one task that owns it.
///
/// The task compares what is wanted with what the server was told, and sends the difference. So it does not matter in
/// which order listeners come and go while an answer is on its way.
pub(super) struct Subscriptions {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) connector: Connector,
    pub(super) channels: Channels,
    pub(super) timeouts: Timeouts,
    pub(super) suspicion: Arc<Suspicion>,
    background: Arc<ConnectionThread>,
    registry: Mutex<Registry>,
    /// Something is wanted that the server was not told.
    pub(super) work: Notify,
    /// Another connection to the same server got no answer.
    pub(super) suspected: Notify,
}

/// Protected by one mutex, which is never held across an await.
///
/// A channel's link goes `Off` → `Joining` → `On` → `Leaving` → `Off`, each step by the task, and `Off` at once when the
/// connection or the subscription ends. Between calls, a channel whose link does not fit its number of listeners is in
/// `changed`, or an answer about it is on its way. `closed` is final: no task begins.
#[derive(Default)]
struct Registry {
    channels: HashMap<Arc<str>, Channel>,
    /// The channels that the task shall look at.
    changed: Vec<Arc<str>>,
    /// Why there is no connection, when the last try failed.
    down: Option<StoreError>,
    task: Option<JoinHandle<()>>,
    closed: bool,
}

struct Channel {
    listeners: usize,
    link: Link,
    /// Messages may have been missed while there was no connection.
    missed: bool,
    signal: watch::Sender<()>,
    status: watch::Sender<Status>,
}

/// What the server was told of a channel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Off,
    Joining,
    On,
    Leaving,
}

/// Where the acknowledgement of a subscription stands.
#[derive(Clone)]
enum Status {
    Pending,
    Listening,
    Failed(StoreError),
}

/// What the server shall be told.
#[derive(Default)]
pub(super) struct Difference {
    pub(super) join: Vec<Arc<str>>,
    pub(super) leave: Vec<Arc<str>>,
}

impl Subscriptions {
    pub(super) fn new(
        connector: Connector,
        channels: Channels,
        timeouts: Timeouts,
        background: Arc<ConnectionThread>,
        suspicion: Arc<Suspicion>,
    ) -> Self {
        let shared = Arc::new(Shared {
            connector,
            channels,
            timeouts,
            suspicion: suspicion.clone(),
            background,
            registry: Mutex::default(),
            work: Notify::new(),
            suspected: Notify::new(),
        });
        let suspected = Arc::downgrade(&shared);
        suspicion.on_raised(move || {
            if let Some(shared) = suspected.upgrade() {
                shared.suspected.notify_one();
            }
        });
        Self { shared }
    }

    /// Listens to a channel, together with all others who do. When this answers, the server has acknowledged it.
    pub(super) async fn listen(&self, channel: String) -> Result<Wakeups, StoreError> {
        let there = self.join(channel).await?;
        Ok(Wakeups::new(there.signal, there.listener))
    }

    /// The same for one who can listen elsewhere when this server does not tell any more.
    pub(super) async fn join(&self, channel: String) -> Result<Listening, StoreError> {
        let shared = &self.shared;
        let (listener, signal, mut status) = shared.register(channel)?;
        shared.work.notify_one();
        let acknowledged = status.wait_for(|status| !matches!(status, Status::Pending));
        let patience = shared.timeouts.connect + shared.timeouts.response;
        match timeout(patience, acknowledged)
            .await
            .map(|status| status.map(|status| status.clone()))
        {
            Ok(Ok(Status::Listening)) => Ok(Listening {
                signal,
                status,
                listener,
            }),
            Ok(Ok(Status::Failed(error))) => Err(error),
            _ => Err(StoreError::new(
                StoreErrorKind::Unreachable,
                "the subscription was not acknowledged in time",
            )),
        }
    }

    /// Wakes those who listen to a channel, as a message would.
    pub(super) fn wake(&self, channel: &str) {
        self.shared.wake(channel);
    }

    /// How many listen to a channel.
    pub(super) fn listeners(&self, channel: &str) -> usize {
        let registry = self.shared.registry();
        registry
            .channels
            .get(channel)
            .map_or(0, |channel| channel.listeners)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let mut registry = self.shared.registry();
        registry.closed = true;
        if let Some(task) = registry.task.take() {
            task.abort();
        }
    }
}

/// A subscription that the server has acknowledged.
pub(super) struct Listening {
    signal: watch::Receiver<()>,
    status: watch::Receiver<Status>,
    listener: Listener,
}

impl Listening {
    /// The next wake-up; `None` if there will be none, because the server does not serve the channel any more or cannot be
    /// reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn heard(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            heard = self.signal.changed() => heard.ok(),
            _ = self.status.wait_for(|status| matches!(status, Status::Failed(_))) => None,
        }
    }
}

/// One who listens. Dropping it tells the task, which unsubscribes when it was the last.
///
/// It does not keep what it listens by: with its store, the connections go.
struct Listener {
    shared: Weak<Shared>,
    channel: Arc<str>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut registry = shared.registry();
        if let Some(channel) = registry.channels.get_mut(&self.channel) {
            channel.listeners -= 1;
            if channel.listeners == 0 {
                registry.changed.push(self.channel.clone());
                shared.work.notify_one();
            }
        }
    }
}

type Registered = (Listener, watch::Receiver<()>, watch::Receiver<Status>);

impl Shared {
    fn register(self: &Arc<Self>, name: String) -> Result<Registered, StoreError> {
        let mut registry = self.registry();
        if registry.task.as_ref().is_none_or(JoinHandle::is_finished) {
            registry.task = Some(tokio::spawn(self.clone().run(true)));
        } else if let Some(error) = &registry.down {
            return Err(error.clone());
        }
        let name: Arc<str> = name.into();
        let channel = registry.channels.entry(name.clone()).or_default();
        channel.listeners += 1;
        let registered = (
            Listener {
                shared: Arc::downgrade(self),
                channel: name.clone(),
            },
            channel.signal.subscribe(),
            channel.status.subscribe(),
        );
        if channel.link == Link::Off {
            channel.status.send_replace(Status::Pending);
            registry.changed.push(name);
        }
        Ok(registered)
    }

    /// A connection is there, and the server knows nothing of this process.
    pub(super) fn connected(&self) {
        let mut registry = self.registry();
        registry.down = None;
        registry.changed = registry.channels.keys().cloned().collect();
    }

    /// The connection is gone, and with it whatever the server was told.
    pub(super) fn disconnected(&self) {
        for channel in self.registry().channels.values_mut() {
            channel.missed |= channel.link != Link::Off;
            channel.link = Link::Off;
            channel.status.send_replace(Status::Pending);
        }
    }

    /// No connection can be had just now: those who wait for an acknowledgement get the error.
    pub(super) fn failed(&self, error: StoreError) {
        let mut registry = self.registry();
        for channel in registry.channels.values() {
            channel.status.send_replace(Status::Failed(error.clone()));
        }
        registry.down = Some(error);
    }

    /// What the server shall be told next. Answered by [`Shared::joined`] and [`Shared::left`].
    pub(super) fn difference(&self) -> Difference {
        let mut registry = self.registry();
        let mut difference = Difference::default();
        for name in std::mem::take(&mut registry.changed) {
            let Some(channel) = registry.channels.get_mut(&name) else {
                continue;
            };
            match (channel.link, channel.listeners) {
                (Link::Off, 0) => {
                    registry.channels.remove(&name);
                }
                (Link::Off, _) => {
                    channel.link = Link::Joining;
                    channel.status.send_replace(Status::Pending);
                    difference.join.push(name);
                }
                (Link::On, 0) => {
                    channel.link = Link::Leaving;
                    // A listener that comes now waits until it is joined again.
                    channel.status.send_replace(Status::Pending);
                    difference.leave.push(name);
                }
                _ => {}
            }
        }
        difference
    }

    /// The server has answered a subscription.
    pub(super) fn joined(&self, name: &Arc<str>, result: Result<(), StoreError>) {
        let mut registry = self.registry();
        let Some(channel) = registry.channels.get_mut(name) else {
            return;
        };
        match result {
            Ok(()) => {
                channel.link = Link::On;
                channel.status.send_replace(Status::Listening);
                if std::mem::take(&mut channel.missed) {
                    channel.signal.send_replace(());
                }
            }
            Err(error) => {
                channel.link = Link::Off;
                channel.status.send_replace(Status::Failed(error));
            }
        }
        if channel.listeners == 0 {
            registry.changed.push(name.clone());
        }
    }

    /// The server has answered the end of a subscription.
    pub(super) fn left(&self, name: &Arc<str>) {
        let mut registry = self.registry();
        if let Some(channel) = registry.channels.get_mut(name) {
            channel.link = Link::Off;
            registry.changed.push(name.clone());
        }
    }

    /// The server has ended a subscription by itself: it does not have the channel's slot any more. False if it came while
    /// the server was being told to begin: then it is unknown which of the two was first.
    pub(super) fn gone(&self, name: &str) -> bool {
        let mut registry = self.registry();
        let Some(channel) = registry.channels.get_mut(name) else {
            return true;
        };
        if channel.link == Link::On {
            channel.link = Link::Off;
            channel.missed = true;
            let moved = "the slot of the channel has moved to another server";
            let error = StoreError::new(StoreErrorKind::Transient, moved);
            channel.status.send_replace(Status::Failed(error));
        }
        channel.link != Link::Joining
    }

    /// A message came. Whatever it says, all listeners ask again.
    pub(super) fn wake(&self, name: &str) {
        if let Some(channel) = self.registry().channels.get(name) {
            channel.signal.send_replace(());
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}

/// Begins the task again on the store's thread when its runtime ends, which may be before those of other listeners do.
pub(super) struct Orphan(Weak<Shared>);

impl Orphan {
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut registry = shared.registry();
        if registry.closed || registry.channels.is_empty() {
            return;
        }
        if let Some(runtime) = shared.background.runtime() {
            // There it ends with the store.
            registry.task = Some(runtime.spawn(shared.clone().run(false)));
        }
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            listeners: 0,
            link: Link::Off,
            missed: false,
            signal: watch::Sender::new(()),
            status: watch::Sender::new(Status::Pending),
        }
    }
}

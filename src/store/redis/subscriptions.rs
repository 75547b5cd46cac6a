//! The subscriptions of a store, and their state on the server.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::channels::Channels;
use super::failure::transient;
use super::node_context::NodeContext;
use super::slot::Slot;
use crate::error::StoreError;
use crate::store::Wakeups;
use crate::sync::{Mutex, MutexGuard};

mod listening;

use listening::{ChannelListener, Listening};

/// The subscriptions of one store: one connection, opened for the first of them, and one task that owns it.
///
/// The task compares the wanted subscriptions with those that it has sent, and sends the difference. So listeners may be
/// added and removed in any order while an answer is under way.
pub(super) struct Subscriptions {
    pub(super) context: Arc<NodeContext>,
    pub(super) channels: Channels,
    registry: Mutex<Registry>,
    /// Notified when there is a difference to send.
    pub(super) work: Notify,
    /// Notified when the connection is to be probed, because another one to the same server got no answer.
    pub(super) probe: Notify,
}

/// Protected by one mutex, which is never held across an await.
///
/// A channel's link goes `Off` → `Joining` → `On` → `Leaving` → `Off`, each step by the task, and `Off` at once when the
/// connection or the subscription ends. Between calls, a channel whose link does not fit its number of listeners is in
/// `changed`, or an answer about it is under way. `closed` is final: afterwards no task starts.
#[derive(Default)]
struct Registry {
    channels: HashMap<Arc<str>, ChannelState>,
    /// The channels that the task must check.
    changed: Vec<Arc<str>>,
    /// Why there is no connection, if the last attempt failed.
    down: Option<StoreError>,
    task: Option<AbortOnDropHandle<()>>,
    closed: bool,
}

struct ChannelState {
    listeners: usize,
    /// Messages may have been missed while there was no connection.
    missed: bool,
    /// The signal of all listeners that are not over. Those that are over count until they are dropped.
    signal: watch::Sender<()>,
    link: watch::Sender<ChannelLink>,
}

/// The state of a channel's subscription on the server.
#[derive(Clone)]
enum ChannelLink {
    /// Why there is none, if it failed or ended. Listeners that wait for an acknowledgement get the error.
    Off(Option<StoreError>),
    Joining,
    On,
    Leaving,
}

/// The commands to send.
#[derive(Default)]
pub(super) struct Difference {
    pub(super) join: Vec<Arc<str>>,
    pub(super) leave: Vec<Arc<str>>,
}

impl Subscriptions {
    pub(super) fn new(context: &Arc<NodeContext>, channels: Channels) -> Arc<Self> {
        let subscriptions = Arc::new(Self {
            context: context.clone(),
            channels,
            registry: Mutex::default(),
            work: Notify::new(),
            probe: Notify::new(),
        });
        context.on_silence(&subscriptions, |subscriptions| {
            subscriptions.probe.notify_one();
        });
        subscriptions
    }

    /// Subscribes to a channel. Listeners of one channel share a subscription. When this returns, the server has
    /// acknowledged it. It outlives the connection. It is over when the server refuses or ends it, and by
    /// [`end_all_but`](Self::end_all_but) and [`close`](Self::close).
    pub(super) async fn listen(self: &Arc<Self>, channel: String) -> Result<Wakeups, StoreError> {
        let listening = self.register(channel)?;
        self.work.notify_one();
        let timeouts = self.context.timeouts();
        listening
            .acknowledged(timeouts.connect + timeouts.response)
            .await
    }

    /// The number of listeners of a channel.
    pub(super) fn listeners(&self, channel: &str) -> usize {
        let registry = self.registry();
        let channel = registry.channels.get(channel);
        channel.map_or(0, |channel| channel.listeners)
    }

    /// Ends the subscriptions of listeners to the channels of slots that the server does not have. A plain channel of such a slot
    /// remains on the server, until its listeners are dropped.
    pub(super) fn end_all_but(&self, has: impl Fn(Slot) -> bool) {
        for (name, channel) in &mut self.registry().channels {
            if !has(Slot::of(name)) {
                channel.signal = watch::Sender::new(());
            }
        }
    }

    /// Ends the task and every subscription. No task starts afterwards.
    pub(super) fn close(&self) {
        let mut registry = self.registry();
        registry.closed = true;
        registry.task = None;
        registry.channels.clear();
    }

    fn register(self: &Arc<Self>, name: String) -> Result<Listening, StoreError> {
        let mut registry = self.registry();
        if registry
            .task
            .as_ref()
            .is_none_or(AbortOnDropHandle::is_finished)
        {
            registry.task = Some(AbortOnDropHandle::new(tokio::spawn(self.clone().run(true))));
        } else if let Some(error) = &registry.down {
            return Err(error.clone());
        }
        let name: Arc<str> = name.into();
        let channel = registry.channels.entry(name.clone()).or_default();
        channel.listeners += 1;
        let listening = Listening {
            signal: channel.signal.subscribe(),
            link: channel.link.subscribe(),
            listener: ChannelListener {
                shared: Arc::downgrade(self),
                channel: name.clone(),
            },
        };
        if channel.is_off() {
            channel.link.send_replace(ChannelLink::Off(None));
            registry.changed.push(name);
        }
        Ok(listening)
    }

    /// There is a new connection, without subscriptions.
    pub(super) fn connected(&self) {
        let mut registry = self.registry();
        registry.down = None;
        registry.changed = registry.channels.keys().cloned().collect();
    }

    /// The connection has ended, and all its subscriptions with it.
    pub(super) fn disconnected(&self) {
        for channel in self.registry().channels.values_mut() {
            channel.missed |= !channel.is_off();
            channel.link.send_replace(ChannelLink::Off(None));
        }
    }

    /// No connection can be opened now: listeners that wait for an acknowledgement get the error.
    pub(super) fn failed(&self, error: StoreError) {
        let mut registry = self.registry();
        for channel in registry.channels.values() {
            let error = Some(error.clone());
            channel.link.send_replace(ChannelLink::Off(error));
        }
        registry.down = Some(error);
    }

    /// The next commands. [`Subscriptions::joined`] and [`Subscriptions::left`] take in the answers.
    pub(super) fn difference(&self) -> Difference {
        let mut registry = self.registry();
        let mut difference = Difference::default();
        for name in std::mem::take(&mut registry.changed) {
            let Some(channel) = registry.channels.get_mut(&name) else {
                continue;
            };
            match (channel.link(), channel.listeners) {
                (ChannelLink::Off(_), 0) => {
                    registry.channels.remove(&name);
                }
                (ChannelLink::Off(_), _) => {
                    channel.link.send_replace(ChannelLink::Joining);
                    difference.join.push(name);
                }
                (ChannelLink::On, 0) => {
                    // A new listener waits until the channel is joined again.
                    channel.link.send_replace(ChannelLink::Leaving);
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
                channel.link.send_replace(ChannelLink::On);
                if std::mem::take(&mut channel.missed) {
                    channel.signal.send_replace(());
                }
            }
            Err(error) => channel.end(error),
        }
        if channel.listeners == 0 {
            registry.changed.push(name.clone());
        }
    }

    /// The server has answered the end of a subscription.
    pub(super) fn left(&self, name: &Arc<str>) {
        let mut registry = self.registry();
        if let Some(channel) = registry.channels.get_mut(name) {
            channel.link.send_replace(ChannelLink::Off(None));
            registry.changed.push(name.clone());
        }
    }

    /// The server has ended a subscription without a request, because it does not have the channel's slot any more.
    /// Returns `false` if a subscribe command is under way: then the order of the two is unknown.
    pub(super) fn gone(&self, name: &str) -> bool {
        let mut registry = self.registry();
        let Some(channel) = registry.channels.get_mut(name) else {
            return true;
        };
        match channel.link() {
            ChannelLink::On => {
                channel.end(transient(
                    "the slot of the channel has moved to another server",
                ));
                true
            }
            link => !matches!(link, ChannelLink::Joining),
        }
    }

    /// A message arrived. All listeners ask again, whatever its content.
    pub(super) fn wake(&self, name: &str) {
        if let Some(channel) = self.registry().channels.get(name) {
            channel.signal.send_replace(());
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}

/// Starts the task again on the store's thread when its runtime ends, because listeners on other runtimes may remain.
pub(super) struct RestartOnDrop(pub(super) Weak<Subscriptions>);

impl Drop for RestartOnDrop {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut registry = shared.registry();
        if registry.closed || registry.channels.is_empty() {
            return;
        }
        if let Some(runtime) = shared.context.settings.background.runtime() {
            // On that thread it ends with the store.
            let task = runtime.spawn(shared.clone().run(false));
            registry.task = Some(AbortOnDropHandle::new(task));
        }
    }
}

impl ChannelState {
    /// The server does not serve the channel. The listeners that it has are over; the next one subscribes again.
    fn end(&mut self, why: StoreError) {
        self.missed = false;
        self.signal = watch::Sender::new(());
        self.link.send_replace(ChannelLink::Off(Some(why)));
    }

    fn link(&self) -> ChannelLink {
        self.link.borrow().clone()
    }

    fn is_off(&self) -> bool {
        matches!(*self.link.borrow(), ChannelLink::Off(_))
    }
}

impl Default for ChannelState {
    fn default() -> Self {
        Self {
            listeners: 0,
            missed: false,
            signal: watch::Sender::new(()),
            link: watch::Sender::new(ChannelLink::Off(None)),
        }
    }
}

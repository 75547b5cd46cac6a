//! The subscriptions of a store, and their state on the server.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Weak};

use redis::aio::SendError;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::connection::SharedConnection;
use super::failure::{transient, unreachable};
use super::node_context::NodeContext;
use super::pooled::Purpose;
use super::slot::Slot;
use crate::error::StoreError;
use crate::store::Wakeups;
use crate::sync::{Mutex, MutexGuard};

/// The subscriptions of one store on one connection, and the task that sends them.
///
/// The task compares the wanted subscriptions with those that it has sent, and sends the difference. So listeners may be
/// added and removed in any order while an answer is under way. The connection takes in messages and acknowledgements, in the order
/// in which they arrive.
pub(super) struct Subscriptions {
    pub(super) context: Arc<NodeContext>,
    pub(super) connection: Arc<SharedConnection>,
    registry: Mutex<Registry>,
    /// Notified when there is a difference to send.
    pub(super) work: Notify,
}

/// Protected by one mutex, which is never held across an await.
///
/// A channel's link goes `Off` → `Joining` → `On` → `Leaving` → `Off`: the task sends, and the server answers. It is `Off` at once
/// when the connection or the subscription ends. Between calls, a channel whose link does not fit its number of listeners is in
/// `changed`, or an answer about it is under way. `closed` is final: afterwards no task starts.
#[derive(Default)]
struct Registry {
    channels: HashMap<Arc<str>, ChannelState>,
    /// The channels that the task must check.
    changed: Vec<Arc<str>>,
    task: Option<AbortOnDropHandle<()>>,
    closed: bool,
}

#[derive(Default)]
struct ChannelState {
    /// Messages may have been missed while there was no connection.
    missed: bool,
    /// The signal of all listeners that are not over.
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

/// A command to send about a channel.
pub(super) enum Change {
    Join(Arc<str>),
    Leave(Arc<str>),
}

impl Subscriptions {
    pub(super) fn new(context: &Arc<NodeContext>) -> Arc<Self> {
        Arc::new_cyclic(|subscriptions: &Weak<Self>| {
            let subscriptions = subscriptions.clone();
            let on_push = Arc::new(move |push: PushInfo| {
                let subscriptions = subscriptions.upgrade().ok_or(SendError)?;
                subscriptions.take_in(&push);
                Ok::<_, SendError>(())
            });
            Self {
                context: context.clone(),
                connection: SharedConnection::new(context, Purpose::Commands, Some(on_push)),
                registry: Mutex::default(),
                work: Notify::new(),
            }
        })
    }

    /// Subscribes to a channel. Listeners of one channel share a subscription. When this returns, the server has
    /// acknowledged it. It outlives the connection. It is over when the server refuses or ends it, and by
    /// [`end_all_but`](Self::end_all_but) and [`close`](Self::close).
    pub(super) async fn listen(self: &Arc<Self>, channel: String) -> Result<Wakeups, StoreError> {
        // It fails at once while the server is known to be down.
        self.connection.look().transpose()?;
        let (wakeups, mut link) = self.register(channel);
        self.work.notify_one();
        let timeouts = self.context.timeouts();
        let answered =
            |link: &ChannelLink| matches!(link, ChannelLink::On | ChannelLink::Off(Some(_)));
        let answer = timeout(
            timeouts.connect + timeouts.response,
            link.wait_for(answered),
        )
        .await;
        match answer.ok().and_then(Result::ok).as_deref() {
            Some(ChannelLink::Off(Some(error))) => Err(error.clone()),
            Some(_) => Ok(wakeups),
            None => Err(unreachable("the subscription was not acknowledged in time")),
        }
    }

    fn register(self: &Arc<Self>, name: String) -> (Wakeups, watch::Receiver<ChannelLink>) {
        let mut registry = self.registry();
        let is_running = |task: &AbortOnDropHandle<_>| !task.is_finished();
        if !registry.closed && !registry.task.as_ref().is_some_and(is_running) {
            registry.task = Some(AbortOnDropHandle::new(tokio::spawn(self.clone().run(true))));
        }
        let name: Arc<str> = name.into();
        let channel = registry.channels.entry(name.clone()).or_default();
        let listener = ChannelListener {
            shared: Arc::downgrade(self),
            channel: name.clone(),
        };
        let wakeups = Wakeups::new(channel.signal.subscribe(), listener);
        let link = channel.link.subscribe();
        if let ChannelLink::Off(_) = channel.link() {
            // A former error does not concern the new listener.
            channel.link.send_replace(ChannelLink::Off(None));
            registry.changed.push(name);
        }
        (wakeups, link)
    }

    /// The number of listeners of a channel.
    pub(super) fn listeners(&self, channel: &str) -> usize {
        let registry = self.registry();
        let channel = registry.channels.get(channel);
        channel.map_or(0, ChannelState::listeners)
    }

    /// Ends the subscriptions of listeners to the channels of slots that the server does not have. A plain channel of such a slot
    /// remains on the server, until its listeners are dropped.
    pub(super) fn end_all_but(&self, has: impl Fn(Slot) -> bool) {
        for (name, channel) in &mut self.registry().channels {
            if !has(Slot::of(name)) {
                channel.signal = watch::Sender::default();
            }
        }
    }

    /// Ends the connection, the task and every subscription. No task starts afterwards.
    pub(super) fn close(&self) {
        self.connection.close();
        let mut registry = self.registry();
        registry.closed = true;
        registry.task = None;
        registry.channels.clear();
    }

    /// There is no connection, and every subscription is to be sent again on the next one.
    pub(super) fn disconnected(&self) {
        let mut registry = self.registry();
        for channel in registry.channels.values_mut() {
            channel.missed |= !matches!(channel.link(), ChannelLink::Off(_));
            channel.link.send_replace(ChannelLink::Off(None));
        }
        registry.changed = registry.channels.keys().cloned().collect();
    }

    /// No connection can be opened now: listeners that wait for an acknowledgement get the error.
    pub(super) fn failed(&self, error: &StoreError) {
        for channel in self.registry().channels.values() {
            let error = Some(error.clone());
            channel.link.send_replace(ChannelLink::Off(error));
        }
    }

    /// The next commands.
    pub(super) fn changes(&self) -> Vec<Change> {
        let mut registry = self.registry();
        let mut changes = Vec::new();
        for name in mem::take(&mut registry.changed) {
            let Some(channel) = registry.channels.get_mut(&name) else {
                continue;
            };
            match (channel.link(), channel.listeners()) {
                (ChannelLink::Off(_), 0) => drop(registry.channels.remove(&name)),
                (ChannelLink::Off(_), _) => {
                    channel.link.send_replace(ChannelLink::Joining);
                    changes.push(Change::Join(name));
                }
                (ChannelLink::On, 0) => {
                    // A new listener waits until the channel is joined again.
                    channel.link.send_replace(ChannelLink::Leaving);
                    changes.push(Change::Leave(name));
                }
                _ => {}
            }
        }
        changes
    }

    /// The server has refused a command about a channel.
    pub(super) fn refused(&self, name: &Arc<str>, why: StoreError) {
        self.change(name, |channel| match channel.link() {
            ChannelLink::Leaving => drop(channel.link.send_replace(ChannelLink::Off(None))),
            _ => channel.end(why),
        });
    }

    /// Takes in a message, or the answer to a command.
    fn take_in(&self, push: &PushInfo) {
        let Some(Value::BulkString(name)) = push.data.first() else {
            return;
        };
        let name = &String::from_utf8_lossy(name);
        match push.kind {
            // All listeners ask again, whatever its content.
            PushKind::Message | PushKind::SMessage => self.wake(name),
            PushKind::Subscribe | PushKind::SSubscribe => self.change(name, |channel| {
                channel.link.send_replace(ChannelLink::On);
                if mem::take(&mut channel.missed) {
                    channel.signal.send_replace(());
                }
            }),
            PushKind::Unsubscribe | PushKind::SUnsubscribe => {
                self.change(name, |channel| match channel.link() {
                    ChannelLink::Leaving => drop(channel.link.send_replace(ChannelLink::Off(None))),
                    // Without a request: the server does not have the channel's slot any more.
                    ChannelLink::On => channel.end(transient(
                        "the slot of the channel has moved to another server",
                    )),
                    _ => {}
                });
            }
            _ => {}
        }
    }

    /// Wakes the listeners of a channel.
    pub(super) fn wake(&self, name: &str) {
        if let Some(channel) = self.registry().channels.get(name) {
            channel.signal.send_replace(());
        }
    }

    /// Changes the state of a channel. If its link does not fit its listeners then, the task checks it.
    fn change(&self, name: &str, change: impl FnOnce(&mut ChannelState)) {
        let mut registry = self.registry();
        let Registry {
            channels, changed, ..
        } = &mut *registry;
        let Some(channel) = channels.get_mut(name) else {
            return;
        };
        change(channel);
        let is_settled = match channel.link() {
            ChannelLink::Off(_) => false,
            ChannelLink::On => channel.listeners() > 0,
            ChannelLink::Joining | ChannelLink::Leaving => true,
        };
        if !is_settled {
            changed.push(name.into());
            self.work.notify_one();
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}

/// A listener. Dropping it notifies the task, which unsubscribes after the last one.
///
/// It does not keep the connection: the connections end with their store.
struct ChannelListener {
    shared: Weak<Subscriptions>,
    channel: Arc<str>,
}

impl Drop for ChannelListener {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            // The receiver of its signal has been dropped before it.
            shared.change(&self.channel, |_| {});
        }
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
        self.signal = watch::Sender::default();
        self.link.send_replace(ChannelLink::Off(Some(why)));
    }

    /// How many listeners are not over.
    fn listeners(&self) -> usize {
        self.signal.receiver_count()
    }

    fn link(&self) -> ChannelLink {
        self.link.borrow().clone()
    }
}

impl Default for ChannelLink {
    fn default() -> Self {
        Self::Off(None)
    }
}

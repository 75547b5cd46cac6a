//! The subscriptions of a store, and their state on the server.
//!
//! They have a connection of their own. A server that moves a slot ends its sharded subscriptions without a request, and the `redis`
//! crate takes that message for the answer to the oldest command under way (redis-rs 1.8, `send_result` in
//! `aio/multiplexed_connection.rs`: each push with `has_reply()` takes an entry of `in_flight`). On a connection with other commands,
//! each later answer would go to the wrong caller: a grant to one who was refused. Here only subscriptions and `PING` are sent, an
//! answer that belongs to another command is found, and the connection is replaced.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, OnceLock, Weak};

use redis::aio::SendError;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::link::Link;
use super::link::Purpose;
use super::link::context::LinkContext;
use super::protocol::failure::{transient, unreachable};
use super::protocol::slot::Slot;
use crate::error::StoreError;
use crate::store::Wakeups;
use crate::sync::Mutex;

mod task;

/// The subscriptions of one store on one connection, and the task that sends them.
///
/// The task compares the wanted subscriptions with those that it has sent, and sends the difference. So listeners may be
/// added and removed in any order while an answer is under way. The connection takes in messages and acknowledgements, in the order
/// in which they arrive.
pub(super) struct Subscriptions {
    pub(super) context: Arc<LinkContext>,
    link: Arc<Link>,
    /// It starts with the first listener.
    task: OnceLock<AbortOnDropHandle<()>>,
    registry: Mutex<Registry>,
    /// Notified when there is a difference to send.
    work: Notify,
}

/// Protected by one mutex, which is never held across an await, nor while a listener is woken: wakers are code outside this crate.
///
/// A channel is not sent, then sent, then acknowledged; and not sent again when the connection ends. It leaves the map when the
/// server refuses or ends it, and when its end is sent after its last listener. Between calls, a channel that is not sent, and one
/// that is acknowledged and has no listener, is in `changed`.
#[derive(Default)]
struct Registry {
    channels: HashMap<Arc<str>, ChannelState>,
    /// The channels that the task must check.
    changed: Vec<Arc<str>>,
}

/// A channel with listeners.
#[derive(Default)]
struct ChannelState {
    /// Each listener has a receiver.
    signal: watch::Sender<()>,
    is_sent: bool,
    answer: watch::Sender<Acknowledged>,
}

impl ChannelState {
    /// No listener waits for that, so none is woken.
    fn forget_answer(&self) {
        self.answer.send_if_modified(|answer| {
            *answer = None;
            false
        });
    }
}

/// The answer of the server to a subscription, if there is one. It is an error also while there is no connection.
type Acknowledged = Option<Result<(), StoreError>>;

/// A command to send about a channel: to subscribe to it, or to end that.
struct Change {
    name: Arc<str>,
    is_wanted: bool,
}

impl Subscriptions {
    pub(super) fn new(context: &Arc<LinkContext>) -> Arc<Self> {
        Arc::new_cyclic(|subscriptions: &Weak<Self>| {
            let subscriptions = subscriptions.clone();
            let on_push = Arc::new(move |push: PushInfo| {
                let subscriptions = subscriptions.upgrade().ok_or(SendError)?;
                subscriptions.take_in(&push);
                Ok::<_, SendError>(())
            });
            Self {
                context: context.clone(),
                link: Link::new(context, Purpose::Commands, Some(on_push)),
                task: OnceLock::new(),
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
        self.link.known().transpose()?;
        let background = &self.context.settings.background;
        self.task
            .get_or_init(|| background.spawn(self.clone().run()));
        let (wakeups, mut answer) = self.register(channel);
        self.work.notify_one();
        let timeouts = self.context.timeouts();
        let answered = answer.wait_for(Option::is_some);
        let answered = timeout(timeouts.connect + timeouts.response, answered).await;
        match answered.ok().and_then(Result::ok).as_deref() {
            Some(Some(Err(error))) => Err(error.clone()),
            Some(_) => Ok(wakeups.starting_now()),
            None => Err(unreachable("the subscription was not acknowledged in time")),
        }
    }

    fn register(self: &Arc<Self>, name: String) -> (Wakeups, watch::Receiver<Acknowledged>) {
        let mut registry = self.registry.lock();
        let name: Arc<str> = name.into();
        let channel = registry.channels.entry(name.clone()).or_default();
        if !channel.is_sent {
            // A former error does not concern the new listener.
            channel.forget_answer();
        }
        let listener = ChannelListener {
            shared: Arc::downgrade(self),
            channel: name.clone(),
        };
        let wakeups = Wakeups::new(channel.signal.subscribe(), listener);
        let answer = channel.answer.subscribe();
        registry.changed.push(name);
        (wakeups, answer)
    }

    /// Ends the subscriptions to the channels of slots that the server does not have.
    pub(super) fn end_all_but(&self, has: impl Fn(Slot) -> bool) {
        let mut over = Vec::new();
        {
            let Registry { channels, changed } = &mut *self.registry.lock();
            for (name, channel) in channels {
                if !has(Slot::of(name)) {
                    over.push(mem::take(&mut channel.signal));
                    changed.push(name.clone());
                }
            }
        }
        drop(over);
        self.work.notify_one();
    }

    /// Ends the connection, the task and every subscription.
    pub(super) fn close(&self) {
        self.link.close();
        if let Some(task) = self.task.get() {
            task.abort();
        }
        let channels = mem::take(&mut self.registry.lock().channels);
        drop(channels);
    }

    /// There is no connection: every subscription is to be sent again on the next one.
    fn disconnected(&self) {
        let mut registry = self.registry.lock();
        for channel in registry.channels.values_mut() {
            channel.is_sent = false;
            channel.forget_answer();
        }
        registry.changed = registry.channels.keys().cloned().collect();
        self.work.notify_one();
    }

    /// No connection can be opened now: listeners that wait for an acknowledgement get the error.
    fn failed(&self, error: &StoreError) {
        let registry = self.registry.lock();
        let channels = registry.channels.values();
        let answers: Vec<_> = channels.map(|channel| channel.answer.clone()).collect();
        drop(registry);
        for answer in answers {
            answer.send_replace(Some(Err(error.clone())));
        }
    }

    /// The next commands.
    fn changes(&self) -> Vec<Change> {
        let mut registry = self.registry.lock();
        let mut changes = Vec::new();
        for name in mem::take(&mut registry.changed) {
            let Some(channel) = registry.channels.get_mut(&name) else {
                continue;
            };
            let is_wanted = channel.signal.receiver_count() > 0;
            let is_answered = channel.answer.borrow().is_some();
            match (is_wanted, channel.is_sent) {
                (true, false) => {
                    channel.is_sent = true;
                    // A failure to connect, which was before, is no answer to it.
                    channel.forget_answer();
                }
                (false, true) if is_answered => drop(registry.channels.remove(&name)),
                (false, false) => {
                    registry.channels.remove(&name);
                    continue;
                }
                _ => continue,
            }
            changes.push(Change { name, is_wanted });
        }
        changes
    }

    /// The server does not serve the channel. The listeners that it has are over; the next one subscribes again.
    fn end(&self, name: &str, why: StoreError) {
        let ended = self.registry.lock().channels.remove(name);
        if let Some(channel) = ended {
            channel.answer.send_replace(Some(Err(why)));
        }
    }

    /// Takes in a message, or the answer to a command.
    fn take_in(&self, push: &PushInfo) {
        let Some(Value::BulkString(name)) = push.data.first() else {
            return;
        };
        let name = &String::from_utf8_lossy(name);
        match push.kind {
            PushKind::Message | PushKind::SMessage => self.wake(name),
            PushKind::Subscribe | PushKind::SSubscribe => {
                let both =
                    |channel: &ChannelState| (channel.signal.clone(), channel.answer.clone());
                if let Some((signal, answer)) = self.look_at(name, both) {
                    // There may have been messages while there was no connection.
                    signal.send_replace(());
                    answer.send_replace(Some(Ok(())));
                }
                self.check(name);
            }
            PushKind::Unsubscribe | PushKind::SUnsubscribe => {
                let is_on = self.look_at(name, |channel| channel.answer.borrow().is_some());
                // Without a request, for which the channel would have left the map.
                if is_on == Some(true) {
                    let why = "the slot of the channel has moved to another server";
                    self.end(name, transient(why));
                }
            }
            _ => {}
        }
    }

    /// Wakes the listeners of a channel. All ask again, whatever a message contains.
    pub(super) fn wake(&self, name: &str) {
        let signal = self.look_at(name, |channel| channel.signal.clone());
        if let Some(signal) = signal {
            signal.send_replace(());
        }
    }

    fn look_at<T>(&self, name: &str, look: impl FnOnce(&ChannelState) -> T) -> Option<T> {
        self.registry.lock().channels.get(name).map(look)
    }

    /// Has the task check a channel.
    fn check(&self, name: &str) {
        self.registry.lock().changed.push(name.into());
        self.work.notify_one();
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
            shared.check(&self.channel);
        }
    }
}

#[cfg(test)]
mod tests;

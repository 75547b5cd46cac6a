//! Wake-ups: one connection that listens for all waiters of a store.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Config, Error, NoTls};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::Wakeups;

/// The pause after a connection that broke: the first, and the longest. They double until one listens.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long a waiter waits for a connection that listens.
const PATIENCE: Duration = Duration::from_secs(5);

/// Those who wait, by the message that wakes them.
///
/// The mutex protects the table. Between calls each entry has at least one waiter.
#[derive(Debug)]
pub(crate) struct Listener {
    waiters: Mutex<HashMap<String, watch::Sender<()>>>,
    /// Whether the connection listens now.
    listens: watch::Sender<bool>,
}

impl Listener {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            waiters: Mutex::default(),
            listens: watch::Sender::new(false),
        })
    }

    /// Listens for as long as it is polled, on one connection after the other.
    pub(crate) async fn run(self: Arc<Self>, config: Config) {
        let (mut pause, mut is_known) = (PAUSE.0, false);
        loop {
            let ended = self.listen(&config).await;
            if self.listens.send_replace(false) {
                (pause, is_known) = (PAUSE.0, false);
            }
            match ended {
                // Once an interruption, which may be long.
                Err(error) if !is_known => tracing::warn!(%error, "wake-ups are interrupted"),
                Err(error) => tracing::debug!(%error, "wake-ups are still interrupted"),
                Ok(()) => {}
            }
            is_known = true;
            sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Passes messages on until the connection ends.
    async fn listen(&self, config: &Config) -> Result<(), Error> {
        let (client, mut connection) = config.connect(NoTls).await?;
        let listening = client.batch_execute("LISTEN tower_lock");
        tokio::pin!(listening);
        let mut listens = false;
        loop {
            let message = tokio::select! {
                begun = &mut listening, if !listens => {
                    begun?;
                    listens = true;
                    self.listens.send_replace(true);
                    self.wake_all();
                    continue;
                }
                // The connection does its work while it is polled for messages.
                message = poll_fn(|context| connection.poll_message(context)) => message,
            };
            match message {
                Some(Ok(AsyncMessage::Notification(message))) => self.wake(message.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            }
        }
    }

    /// Wakes whenever `message` comes. When this answers, listening has begun.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        message: String,
    ) -> Result<Wakeups, StoreError> {
        // The entry comes first: what is sent from the moment on at which the connection listens finds it.
        let (signal, subscription) = {
            let mut waiters = self.waiters();
            let signal = waiters.entry(message.clone()).or_default().subscribe();
            (signal, Subscription(self.clone(), message))
        };
        let wakeups = Wakeups::new(signal, subscription);
        let mut listens = self.listens.subscribe();
        match timeout(PATIENCE, listens.wait_for(|listens| *listens)).await {
            Ok(Ok(_)) => Ok(wakeups),
            _ => Err(StoreError::new(
                StoreErrorKind::Unreachable,
                "no connection to PostgreSQL listens for wake-ups",
            )),
        }
    }

    fn wake(&self, message: &str) {
        if let Some(signal) = self.waiters().get(message) {
            signal.send_replace(());
        }
    }

    /// Messages may have been lost until now.
    fn wake_all(&self) {
        self.waiters().values().for_each(|signal| {
            signal.send_replace(());
        });
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a waiter's entry. It is dropped after the waiter's signal.
struct Subscription(Arc<Listener>, String);

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut waiters = self.0.waiters();
        if waiters
            .get(&self.1)
            .is_some_and(|signal| signal.receiver_count() == 0)
        {
            waiters.remove(&self.1);
        }
    }
}

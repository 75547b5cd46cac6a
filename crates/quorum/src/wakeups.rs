//! Wake-ups from several stores.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower_distributed_lock::store::Wakeups;

use crate::table::lock;

/// The bound of the first pause after a split vote, and of the longest. A pause is drawn at random below a bound that doubles with
/// each split.
const PAUSE: (Duration, Duration) = (Duration::from_millis(8), Duration::from_millis(500));

/// When those who wait for a key ask again. After a split vote, clients must not ask again at the same time, although each wakes the
/// others, and itself, by giving back what it was granted.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<(Instant, u32)>);

impl Pace {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }

    /// A grant is given back, after a vote that took this long. Returns for how long no waiter is woken.
    pub(crate) fn pause(&self, taken: Duration) -> Duration {
        let (quiet_until, splits) = &mut *lock(&self.0);
        let now = Instant::now();
        if *quiet_until <= now {
            let bound = PAUSE.0.max(2 * taken) * (1 << (*splits).min(16));
            *quiet_until = now + bound.min(PAUSE.1).mul_f64(fastrand::f64());
            *splits += 1;
        }
        *quiet_until - now
    }

    /// A vote was won: the next pause is short again.
    pub(crate) fn granted(&self) {
        lock(&self.0).1 = 0;
    }
}

/// Signals when it is time to ask again, until no listener is left, or the subscription is over in any store: then the client subscribes
/// again.
pub(crate) async fn listen(
    mut heard: Wakeups,
    pace: Arc<Pace>,
    signal: watch::Sender<()>,
    over: CancellationToken,
) {
    let _over = over.clone().drop_guard();
    let hearing = async {
        while heard.wait().await {
            let (quiet_until, _) = *lock(&pace.0);
            sleep_until(quiet_until).await;
            signal.send_replace(());
        }
    };
    tokio::select! {
        biased; // without chance, a simulation replays
        () = signal.closed() => {}
        () = over.cancelled() => {}
        () = hearing => {}
    }
}

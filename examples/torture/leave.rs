//! The end of a worker.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::{LockClient, LockError, LockMode};

use crate::event::Event;
use crate::habits::Habits;
use crate::work::Sink;

/// How long anything may take at the end.
const LIMIT: Duration = Duration::from_secs(30);

/// Without faults, every lock can be taken, and nothing is left.
pub(crate) async fn leave(locks: &LockClient, habits: &Habits, sink: &Sink) {
    let broken = |promise: &str, text: String| {
        sink(Event::Broken {
            promise: promise.into(),
            text,
        });
    };
    for (key, shared) in habits.keys() {
        let mode = match shared {
            true => LockMode::Write,
            false => LockMode::Reentrant,
        };
        let (begun, mut tries) = (Instant::now(), 0);
        let taken = loop {
            tries += 1;
            let wait = LIMIT.saturating_sub(begun.elapsed());
            let taken = match locks.lock(&*key).mode(mode).wait(wait).await {
                Ok(guard) => guard.release().await,
                Err(error) => Err(error),
            };
            match taken {
                // A store that cannot be reached says so at once, and one dial may take long on a busy machine.
                Err(LockError::Unavailable(_)) if begun.elapsed() < LIMIT => {
                    sleep(Duration::from_millis(50)).await;
                }
                taken => break taken,
            }
        };
        if let Err(error) = taken {
            let text = format!("{key} cannot be taken at the end, tried {tries} times: {error:?}");
            broken("L6", text);
        }
    }
    let idle = async {
        while locks.keys_in_use() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(LIMIT, idle).await.is_err() {
        broken(
            "L8",
            format!("{} keys are in use for ever", locks.keys_in_use()),
        );
    }
    if let Err(error) = locks.shutdown(LIMIT).await {
        broken(
            "L8",
            format!("the client does not come to its end: {error:?}"),
        );
    }
    sink(Event::Done);
}

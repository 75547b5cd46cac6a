//! The end of a worker.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_distributed_lock::{LockClient, LockMode};

use crate::event::Event;
use crate::habits::Habits;
use crate::work::Sink;

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
        let request = locks.lock(&*key).mode(mode).wait(Duration::from_secs(30));
        let released = match request.await {
            Ok(guard) => guard.release().await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            broken("L6", format!("{key} cannot be taken at the end: {error:?}"));
        }
    }
    let idle = async {
        while locks.keys_in_use() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(Duration::from_secs(30), idle).await.is_err() {
        broken(
            "L8",
            format!("{} keys are in use for ever", locks.keys_in_use()),
        );
    }
    if let Err(error) = locks.shutdown(Duration::from_secs(30)).await {
        broken(
            "L8",
            format!("the client does not come to its end: {error:?}"),
        );
    }
    sink(Event::Done);
}

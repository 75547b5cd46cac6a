//! A runtime that no caller can keep busy.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a small runtime, which drives what is spawned there. Both end when this is dropped; nobody waits for that.
pub(super) struct Thread {
    runtime: Handle,
    /// Dropped, it ends the thread.
    _alive: oneshot::Sender<()>,
}

impl Thread {
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel();
        // The runtime is dropped over there, where it may block.
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || drive(runtime, ended))?;
        Ok(Self {
            runtime: handle,
            _alive: alive,
        })
    }

    pub(super) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }
}

fn drive(runtime: tokio::runtime::Runtime, ended: impl Future) {
    runtime.block_on(async {
        ended.await;
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::Thread;

    #[test]
    fn what_runs_there_ends_with_it() {
        let thread = Thread::start("renewals").unwrap();
        let (alive, ended) = mpsc::channel::<()>();
        thread.runtime().spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        assert_eq!(
            ended.recv_timeout(Duration::from_millis(20)),
            Err(mpsc::RecvTimeoutError::Timeout)
        );
        drop(thread);
        assert_eq!(
            ended.recv_timeout(Duration::from_secs(60)),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
    }

    #[tokio::test]
    async fn it_may_be_dropped_where_nobody_may_block() {
        drop(Thread::start("renewals").unwrap());
    }
}

//! A runtime for the store alone. It lives as long as the store, and callers cannot block it.

use std::io;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

/// The thread of one store. It starts when it is first needed.
#[derive(Default)]
pub(crate) struct ConnectionThread(OnceLock<Option<(Handle, Alive)>>);

/// Dropping it ends the thread, and does not wait for the end.
type Alive = oneshot::Sender<()>;

impl ConnectionThread {
    /// The thread's runtime; `None` if the thread could not be started.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        let thread = self.0.get_or_init(|| {
            let failed = |error: &_| tracing::warn!(%error, "no thread for renewals: they need a free worker");
            start().inspect_err(failed).ok()
        });
        thread.as_ref().map(|(runtime, _)| runtime.clone())
    }

    /// Runs a task on the thread, so that it outlives the runtimes of callers.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> AbortOnDropHandle<T> {
        AbortOnDropHandle::new(match self.runtime() {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        })
    }
}

/// Starts a thread with a current-thread runtime.
fn start() -> io::Result<(Handle, Alive)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (alive, ended) = oneshot::channel();
    // The runtime is dropped on its own thread, where it may block.
    let thread = std::thread::Builder::new().name("lock-renewals".to_owned());
    thread.spawn(move || drop(runtime.block_on(ended)))?;
    Ok((handle, alive))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::start;

    #[test]
    fn tasks_of_the_thread_end_with_it() {
        let (runtime, alive_thread) = start().unwrap();
        let (alive, ended) = mpsc::channel::<()>();
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        assert_eq!(
            ended.recv_timeout(Duration::from_millis(20)),
            Err(mpsc::RecvTimeoutError::Timeout)
        );
        drop(alive_thread);
        assert_eq!(
            ended.recv_timeout(Duration::from_secs(60)),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
    }

    #[tokio::test]
    async fn a_thread_may_be_dropped_where_blocking_is_forbidden() {
        drop(start().unwrap());
    }
}

//! Work that continues after its caller is dropped.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::sync::Mutex;

mod non_cancellable;
mod release_limit;

pub(crate) use non_cancellable::{ANSWER_TIME, NonCancellable, Work, in_time, is_in_background};
pub(crate) use release_limit::ReleaseLimit;

/// Work without a result.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs jobs in the background, and counts all work that is not done.
///
/// A job runs on the runtime of the caller that drops it, otherwise on the one that last took a lock. When a runtime
/// ends, its jobs move to another one.
///
/// A runtime that lives and is not driven keeps its jobs. A request of another runtime waits for such a release twice [`ANSWER_TIME`]
/// at most, apart from its hold's lease in the store, and another release waits for its place five seconds at most. This is not
/// taken from it:
///
/// * The turn of a nested read: the next nested read of its owner waits until that release is done.
/// * A turn or a hold that a request there has got, and has not noticed: other requests wait for it as for any holder.
/// * A subscription in a quorum, whose task runs there: the requests that use it hear no wake-up, and each hand-over by another
///   process costs one poll.
/// * A permit of a caller's pool, for which a connection is opened there: without another one, that connection stays down.
#[derive(Default)]
pub(crate) struct CleanupTasks {
    state: Mutex<CleanupState>,
    /// Whether a job is stranded. It is written under the mutex, and read without it by requests that do not get their lock at
    /// once.
    has_stranded: AtomicBool,
    /// The number of [`Unfinished`], and [`DRAINING`]. Work is counted from before it begins until it is done, including while its
    /// caller drives it, so that it is always counted between the caller and the background.
    unfinished: AtomicUsize,
    /// Notified when the count has reached zero, or a job is stranded.
    changed: Notify,
}

/// Added to the count by [`CleanupTasks::drained`]: from then on the end of the last work notifies. It is in the same number, so
/// that the end of work either sees it, or is seen by the caller.
const DRAINING: usize = 1 << (usize::BITS - 1);

/// Protected by one mutex; no other mutex is taken under it.
///
/// A job is put on a runtime. When that ends, the job moves to another one, or to `stranded` if none is known; the next
/// runtime that is noted takes it from there. Between calls each job that is not done is in one of the two places. A job has its
/// client's store, so none stays stranded when the client is closed.
#[derive(Default)]
struct CleanupState {
    /// The runtimes from which locks were taken, the latest one last.
    runtimes: [Option<Handle>; 2],
    /// Jobs without a known runtime that still runs.
    stranded: Vec<RunningJob>,
    /// No request comes any more, with a runtime that is not known.
    closed: bool,
}

impl CleanupTasks {
    /// Stores the runtime of the caller, if there is one, and starts the stranded jobs on it.
    pub(crate) fn note_runtime(&self) {
        let Ok(here) = Handle::try_current() else {
            return;
        };
        let (replaced, stranded) = {
            let mut state = self.state.lock();
            if state.stranded.is_empty() && state.knows(&here) {
                return;
            }
            self.has_stranded.store(false, Ordering::Relaxed);
            (state.remember(&here), mem::take(&mut state.stranded))
        };
        // Dropped outside the mutex, because the last handle of an ended runtime may drop tasks.
        drop(replaced);
        stranded.into_iter().for_each(RunningJob::start);
    }

    /// Starts the stranded jobs here: the caller may wait for what they release.
    pub(crate) fn start_stranded(&self) {
        if self.has_stranded.load(Ordering::Relaxed) {
            self.note_runtime();
        }
    }

    /// Starts the stranded jobs here. Without a runtime here it gives them up, because only another request could start them: what
    /// they were to release ends with its lease.
    pub(crate) fn close(&self) {
        let stranded = {
            let mut state = self.state.lock();
            state.closed = true;
            mem::take(&mut state.stranded)
        };
        stranded.into_iter().for_each(RunningJob::start);
    }

    /// A runtime other than those that have `ended`, from which locks were taken.
    pub(crate) fn runtime_but(&self, ended: &[Id]) -> Option<Handle> {
        self.state.lock().runtime_but(ended)
    }

    /// Counts work until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Unfinished {
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        Unfinished(self.clone())
    }

    /// Does something at a later time, unless its runtime ends before. It does not count as work.
    pub(crate) fn later(&self, at: Instant, work: impl Future<Output = ()> + Send + 'static) {
        let here = Handle::try_current().ok();
        let Some(runtime) = here.or_else(|| self.runtime_but(&[])) else {
            return;
        };
        runtime.spawn(async move {
            sleep_until(at).await;
            work.await;
        });
    }

    /// Waits until all work is done.
    pub(crate) async fn drained(&self) {
        self.unfinished.fetch_or(DRAINING, Ordering::AcqRel);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the count is read, so that no change is missed between the two.
            changed.as_mut().enable();
            self.note_runtime();
            if self.unfinished.load(Ordering::Acquire) == DRAINING {
                return;
            }
            changed.await;
        }
    }
}

impl CleanupState {
    /// Stores `here`; returns the handle that it replaces.
    fn remember(&mut self, here: &Handle) -> Option<Handle> {
        if self.knows(here) {
            return None;
        }
        self.runtimes.rotate_left(1);
        self.runtimes[1].replace(here.clone())
    }

    fn knows(&self, here: &Handle) -> bool {
        // The latest is nearly always the one.
        let mut known = self.runtimes.iter().rev().flatten();
        known.any(|known| known.id() == here.id())
    }

    fn runtime_but(&self, ended: &[Id]) -> Option<Handle> {
        let mut latest = self.runtimes.iter().rev().flatten();
        latest
            .find(|runtime| !ended.contains(&runtime.id()))
            .cloned()
    }
}

/// Counts a piece of work that is not done.
pub(crate) struct Unfinished(Arc<CleanupTasks>);

impl Unfinished {
    /// Drives the rest of the work to its end in the background. Never blocks; works outside a runtime.
    pub(crate) fn adopt(self, job: Job) {
        RunningJob::start(RunningJob {
            job: Some(job),
            unfinished: self,
            tried: SmallVec::new(),
        });
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let tasks = &self.0;
        if tasks.unfinished.fetch_sub(1, Ordering::AcqRel) == DRAINING + 1 {
            tasks.changed.notify_waiters();
        }
    }
}

/// A job on a runtime. If it is dropped before its end, with its runtime, it continues on another one.
struct RunningJob {
    job: Option<Job>,
    unfinished: Unfinished,
    /// The runtimes on which it was started. All but the last have ended.
    tried: SmallVec<[Id; 2]>,
}

impl RunningJob {
    fn start(mut self) {
        let tasks = self.unfinished.0.clone();
        let here = Handle::try_current();
        let here = here.ok().filter(|here| !self.tried.contains(&here.id()));
        let runtime = {
            let mut state = tasks.state.lock();
            match here.or_else(|| state.runtime_but(&self.tried)) {
                Some(runtime) => runtime,
                None if state.closed => {
                    drop(state);
                    return drop(self.job.take());
                }
                None => {
                    state.stranded.push(self);
                    tasks.has_stranded.store(true, Ordering::Relaxed);
                    drop(state);
                    return tasks.changed.notify_waiters();
                }
            }
        };
        self.tried.push(runtime.id());
        #[cfg(test)]
        let Some(running) = crate::exploration::spawn(self) else {
            return;
        };
        #[cfg(not(test))]
        let running = self;
        drop(runtime.spawn(running));
    }
}

impl Future for RunningJob {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Taken out while it is polled, so that a job that panics is not polled again.
        let Some(mut job) = self.job.take() else {
            return Poll::Ready(());
        };
        let polled = catch_unwind(AssertUnwindSafe(|| job.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Ready(())) => Poll::Ready(()),
            Ok(Poll::Pending) => {
                self.job = Some(job);
                Poll::Pending
            }
            // A job that has run on a runtime that ended panics at its next timer.
            Err(panic) => {
                warn_of(&*panic);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            Self::start(Self {
                job: Some(job),
                unfinished: self.unfinished.0.begin(),
                tried: mem::take(&mut self.tried),
            });
        }
    }
}

fn warn_of(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::warn!(
        panic = text,
        "a background job panicked: its holds end with their leases"
    );
}

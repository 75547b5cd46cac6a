//! The release of shares, as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{self, StreamExt};
use smallvec::{SmallVec, smallvec};

use super::Core;
use super::ending::Ending;
use crate::error::LockError;
use crate::hold::{Held, Question};
use crate::spawn::Spawner;
use crate::store::{Asked, BATCH, Record, undecided};

/// The release of shares, as a future. It is small, because each request of a layer has one.
///
/// # Cancel safety
///
/// A release in the store that has begun continues in the background.
#[must_use = "it says whether the lock was held"]
pub(crate) struct ShareRelease {
    work: Work,
    /// It fails as lost, whatever the store answers.
    is_lost: bool,
}

/// The holds whose loss may become known before the end.
type Holds = SmallVec<[Arc<Held>; 1]>;

pub(super) enum Work {
    Done(Option<Result<(), LockError>>),
    /// The store was asked once.
    Asked(Option<Ending>),
    /// A question about a hold that goes on, or releases that wait or are repeated: if they are dropped, they go on by themselves.
    Waits(BoxFuture<'static, Result<(), LockError>>, Holds),
}

impl ShareRelease {
    pub(super) fn new(work: Work) -> Self {
        let is_lost = false;
        Self { work, is_lost }
    }

    pub(crate) fn done(result: Result<(), LockError>) -> Self {
        Self::new(Work::Done(Some(result)))
    }

    /// Waits for the verdict about a share that ended after the question `last`.
    pub(super) fn confirmed(held: &Arc<Held>, last: Question) -> Self {
        match held.verdict(last) {
            Some(verdict) => Self::done(verdict),
            None => {
                let work = Box::pin(Core::confirmed(held.clone(), last));
                Self::new(Work::Waits(work, smallvec![held.clone()]))
            }
        }
    }

    /// The same, which also fails as lost if `is_lost`.
    pub(super) fn lost_if(mut self, is_lost: bool) -> Self {
        self.is_lost |= is_lost;
        self
    }

    /// Whether it fails as lost, by what is known now, whatever the store still answers.
    pub(crate) fn is_lost(&self) -> bool {
        let seen_lost = match &self.work {
            Work::Waits(_, holds) => holds.iter().any(|held| held.was_lost()),
            Work::Done(_) | Work::Asked(_) => false,
        };
        self.is_lost || seen_lost
    }
}

impl Future for ShareRelease {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let released = loop {
            match &mut self.work {
                Work::Done(result) => break result.take().expect("polled after it was ready"),
                Work::Asked(asked) => {
                    let ending = asked.as_mut().expect("polled after it was ready");
                    let answer = ending.answer.as_mut().expect("it was asked");
                    let released = ready!(answer.as_mut().poll(cx));
                    let mut ending = asked.take().expect("it was there");
                    ending.answer = None;
                    match ending.answered(released) {
                        Some(result) => break result,
                        None => {
                            self.work = Work::Waits(Box::pin(ending.repeated()), SmallVec::new());
                        }
                    }
                }
                Work::Waits(work, _) => break ready!(work.as_mut().poll(cx)),
            }
        };
        Poll::Ready(match self.is_lost {
            true => Err(LockError::Lost),
            false => released,
        })
    }
}

impl Ending {
    /// Releases it. A store that answers at once has answered when this returns.
    pub(super) fn begin(mut self, record: Option<Record>) -> ShareRelease {
        // A lost hold is released as well, because the store may still carry it.
        let is_held = self.is_held;
        self.record = record.filter(|_| is_held).map(Box::new);
        match self.ask() {
            Asked::Now(released) => {
                let result = self.answered(released);
                let result = result.unwrap_or_else(|| self.ended(Err(undecided().into())));
                ShareRelease::done(result)
            }
            Asked::Later(answer) => {
                self.answer = Some(answer);
                ShareRelease::new(Work::Asked(Some(self)))
            }
        }
        .lost_if(!is_held)
    }

    /// The same where no caller waits: near its caller, unless many others are there already.
    pub(super) fn in_background(mut self) {
        let core = self.core.clone();
        if core.store.answers_at_once() {
            drop(self.begin(None));
            return;
        }
        let mut near = Spawner::near();
        if near.is_some() {
            self.place = core.near.clone().try_acquire_owned().ok();
            near = near.filter(|_| self.place.is_some());
        }
        core.spawner.run_on(near, self.in_turn());
    }
}

/// Ends holds for which nothing in this process waits: in an outage, so many of a partition are repeated, and the others wait.
pub(super) async fn end_all(core: Arc<Core>, ends: Vec<Ending>) {
    let partitions = core.store.by_partition(ends, |end| &end.held.hold.key);
    let ends = partitions.into_values();
    some_at_a_time(ends.map(|ends| ends.into_iter().map(Ending::in_turn))).await;
}

/// Drives the releases of each partition, so many at a time: one that is down does not delay another.
pub(super) async fn some_at_a_time<F: Future>(
    partitions: impl IntoIterator<Item = impl IntoIterator<Item = F>>,
) -> Vec<F::Output> {
    let each = partitions.into_iter().map(|releases| {
        stream::iter(releases)
            .buffer_unordered(BATCH)
            .collect::<Vec<_>>()
    });
    join_all(each).await.into_iter().flatten().collect()
}

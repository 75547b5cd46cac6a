//! Limits how many releases the background sends at once.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::shared_table::SharedTable;
use crate::store::BATCH;

/// How long a release waits for its place: longer than a store takes for an answer or a failure.
const STUCK: Duration = Duration::from_secs(5);

/// Limits the releases that no caller waits for, for each partition of the store: guards that are dropped together are
/// released in turn, and a partition that is down does not delay another.
pub(crate) struct ReleaseLimit(SharedTable<u16, Arc<Semaphore>>);

impl Default for ReleaseLimit {
    fn default() -> Self {
        let is_in_use = |places: &Arc<Semaphore>| places.available_permits() < BATCH;
        Self(SharedTable::new(is_in_use))
    }
}

impl ReleaseLimit {
    /// Waits for one of the places of `partition`, [`STUCK`] at most: the releases that have them, or wait for one before, may
    /// be on a runtime that is not driven.
    pub(crate) async fn enter(&self, partition: u16) -> Option<OwnedSemaphorePermit> {
        let new = || Arc::new(Semaphore::new(BATCH));
        let places = self.0.find_or(&partition, new);
        let mut place = pin!(Arc::clone(&places).acquire_owned());
        let (until, mut limit) = (Instant::now() + STUCK, None);
        poll_fn(|cx| {
            if let Poll::Ready(place) = place.as_mut().poll(cx) {
                return Poll::Ready(place.ok());
            }
            // When its runtime ends, the release waits on another one, where the timer of the first one panics.
            let here = Handle::current().id();
            let timer = match &mut limit {
                Some((on, timer)) if *on == here => timer,
                none => &mut none.insert((here, Box::pin(sleep_until(until)))).1,
            };
            Pin::new(timer).poll(cx).map(|()| None)
        })
        .await
    }
}

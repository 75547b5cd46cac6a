//! Futures that are dropped in the middle.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

/// When a caller drops its future.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    Endless,
    /// After this time.
    Time(Duration),
    /// After this number of polls.
    Polls(u32),
}

impl Patience {
    /// The output of the future; `None` if it was dropped before.
    pub(super) async fn bear<T>(self, future: impl Future<Output = T>) -> Option<T> {
        match self {
            Self::Endless => Some(future.await),
            Self::Time(time) => timeout(time, future).await.ok(),
            Self::Polls(most) => {
                let mut future = pin!(future);
                let mut polls = 0;
                std::future::poll_fn(|cx| {
                    if polls == most {
                        return Poll::Ready(None);
                    }
                    polls += 1;
                    Pin::as_mut(&mut future).poll(cx).map(Some)
                })
                .await
            }
        }
    }
}

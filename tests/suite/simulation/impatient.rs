//! Futures that are dropped in the middle.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

/// When a caller goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    Endless,
    /// After so long.
    Time(Duration),
    /// Before a future is polled more often than this.
    Polls(u32),
}

impl Patience {
    /// What the future comes to; `None` if it was dropped before.
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

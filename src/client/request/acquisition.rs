//! A request that has begun.

use std::pin::pin;

use smallvec::smallvec;
use tokio::time::Instant;
use tracing::Instrument;

use super::{LockRequest, Targets};
use crate::client::all::AllOf;
use crate::client::any::take_any;
use crate::client::ticket::Ticket;
use crate::client::wait::Wait;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::lock::{LockKey, LockMode, ResourceKey};
use crate::release::{Share, Shares};
use crate::telemetry::Waiting;

/// A request that has begun: it is granted, or it waits.
pub(crate) enum Started<G, W> {
    Granted(G),
    Waits(W),
}

/// The rest of a request that waits for its store or for its turn. Its fields are dropped in this order.
pub(crate) struct Acquisition<'a> {
    /// A request for several keys has no place yet.
    pub(super) ticket: Ticket<'a>,
    pub(super) request: &'a LockRequest,
    pub(super) wait: Wait,
    pub(super) now: Instant,
    pub(super) waiting: Waiting,
}

impl<'a> Acquisition<'a> {
    /// Waits for the grant: see [`LockRequest::acquire`].
    pub(crate) fn finish(self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'a {
        let Self {
            mut ticket,
            request,
            wait,
            now,
            waiting,
        } = self;
        async move {
            let (core, terms) = (&request.client.inner.core, &request.terms);
            // Pinned here, so that the futures around it move only a pointer.
            let work = pin!(async {
                match &request.targets {
                    Targets::One(_) => ticket.take(wait).await.map(guard),
                    Targets::All(targets) => {
                        let keys = &in_order(targets, request.mode)?;
                        let all = AllOf {
                            core,
                            keys,
                            terms,
                            wait,
                        };
                        Box::pin(all.take()).await.map(LockGuard::new)
                    }
                    Targets::Any(targets) => {
                        let mut keys = in_order(targets, request.mode)?;
                        // Requests begin at different keys, so that the keys are used equally.
                        fastrand::shuffle(&mut keys);
                        Box::pin(take_any(core, &keys, terms, wait, now))
                            .await
                            .map(guard)
                    }
                }
            });
            let taken = match waiting.span() {
                Some(span) => work.instrument(span).await,
                None => work.await,
            };
            match taken {
                Ok(guard) => Ok(guard.observed(waiting)),
                Err(error) => {
                    request.refused(waiting, &error, now);
                    Err(error)
                }
            }
        }
    }
}

pub(super) fn guard(share: Share) -> LockGuard {
    LockGuard::new(Shares::new(smallvec![share]))
}

/// Sorted, each key once; of two modes of one key the excluding one.
///
/// # Errors
///
/// `Invalid` if a key is asked for in two modes of which one does not stand for both.
fn in_order(
    targets: &[ResourceKey],
    mode: Option<LockMode>,
) -> Result<Vec<(&LockKey, LockMode)>, LockError> {
    let targets = targets.iter();
    let targets = targets.map(|target| (target.key(), target.mode_in(mode)));
    let mut targets: Vec<_> = targets.collect();
    targets.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.is_exclusive().cmp(&x.is_exclusive())));
    let contradict = |pair: &[(&LockKey, LockMode)]| {
        let [(one, x), (other, y)] = pair else {
            return false;
        };
        one == other && (x.family() != y.family() || x.is_permit() && x != y)
    };
    if targets.windows(2).any(contradict) {
        return Err(LockError::invalid(
            "a key is asked for in two modes that contradict each other: use modes of one family, and one limit of permits, for \
             a key",
        ));
    }
    targets.dedup_by(|later, earlier| later.0 == earlier.0);
    Ok(targets)
}

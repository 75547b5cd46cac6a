//! What is left of a request that has begun.

use std::pin::pin;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::super::acquire::Request;
use super::super::all::AllOf;
use super::super::request_tracker::TrackedRequest;
use super::super::target::Target;
use super::super::wait::{Wait, over};
use super::{LockRequest, Targets};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::lock::{LockKey, LockMode};
use crate::telemetry::Waiting;

/// A request that has begun: it is granted, or it waits.
pub(crate) enum Started<G, W> {
    Granted(G),
    Waits(W),
}

/// The rest of a request that waits for its store or for its turn. Its fields are dropped in this order.
pub(crate) struct Acquisition<'a> {
    /// What [`LockClient::take_at_once`](super::super::LockClient::take_at_once) has begun.
    pub(super) entered: Option<Box<Request<'a>>>,
    pub(super) request: &'a LockRequest,
    pub(super) wait: Wait,
    pub(super) now: Instant,
    pub(super) waiting: Waiting,
    pub(super) tracked: TrackedRequest<'a>,
}

impl<'a> Acquisition<'a> {
    /// Waits for the grant: see [`LockRequest::acquire`].
    pub(crate) fn finish(self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'a {
        let Self {
            entered,
            request,
            wait,
            now,
            waiting,
            tracked,
        } = self;
        async move {
            let (client, terms) = (&request.client, &request.terms);
            // Pinned here, so that the futures around it move only a pointer.
            let work = pin!(async {
                let guard = match &request.targets {
                    Targets::One(target) => {
                        let keys = &[(&target.key, terms.mode)];
                        LockGuard::new(client.take(keys, entered, terms, wait, now).await?)
                    }
                    Targets::All(targets) => {
                        let keys = &in_order(targets, request.mode)?;
                        let all = AllOf {
                            client,
                            keys,
                            terms,
                            wait,
                        };
                        LockGuard::new(Box::pin(all.take()).await?)
                    }
                    Targets::Any(targets) => {
                        let mut keys = in_order(targets, request.mode)?;
                        // Requests begin at different keys, so that the keys are used equally.
                        fastrand::shuffle(&mut keys);
                        LockGuard::new(client.take(&keys, None, terms, wait, now).await?)
                    }
                };
                match request.hold_at_least {
                    None => Ok(guard),
                    Some(time) => {
                        let kept = guard.kept_until(Instant::now() + time);
                        let kept = Box::pin(timeout_at(wait.until, kept)).await;
                        kept.unwrap_or_else(|_| Err(over(None)))
                    }
                }
            });
            let working = tracked.unless_closed(work);
            let taken = match waiting.span() {
                Some(span) => working.instrument(span).await,
                None => working.await,
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

/// Sorted, each key once; of two modes of one key the excluding one.
///
/// # Errors
///
/// `Invalid` if a key is asked for in two modes of which one does not stand for both.
fn in_order(
    targets: &[Target],
    mode: Option<LockMode>,
) -> Result<Vec<(&LockKey, LockMode)>, LockError> {
    let targets = targets.iter();
    let targets = targets.map(|target| (&target.key, target.mode_in(mode)));
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

//! One of several keys.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::acquire::unless_closed;
use super::ticket::Ticket;
use super::wait::Wait;
use crate::contend::{Pending, answered_late};
use crate::error::LockError;
use crate::lock::{LockKey, LockMode};
use crate::release::{Core, Share};
use crate::store::{Reply, Want};
use crate::table::Terms;

/// Takes one of several keys: the first that this process can share, or that the store grants.
pub(super) async fn take_any(
    core: &Arc<Core>,
    keys: &[(&LockKey, LockMode)],
    terms: &Terms,
    wait: Wait,
    now: Instant,
) -> Result<Share, LockError> {
    let route = terms.route;
    let terms = keys.iter().map(|(_, mode)| terms.in_mode(*mode));
    let terms: Vec<_> = terms.collect();
    let mut ticket = Ticket::new(core, route, now);
    let mut refused = None;
    for ((key, _), terms) in keys.iter().zip(&terms) {
        match ticket.enter(key, terms) {
            Ok(Some(share)) => return Ok(share),
            Ok(None) => {}
            Err(error @ (LockError::Busy { .. } | LockError::Overloaded)) => {
                refused = Some(sooner(refused, error));
            }
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if ticket.places.is_empty() => return Err(error),
        _ => {}
    }
    if let Some(share) = ask_any(&mut ticket, wait).await? {
        return Ok(share);
    }
    ticket.wait(wait).await
}

/// Asks for the first free one of the keys that may be asked for. If none is, the request waits for all of them.
async fn ask_any(ticket: &mut Ticket<'_>, wait: Wait) -> Result<Option<Share>, LockError> {
    // Those that ask come last, in their order.
    ticket.places.sort_by_key(|place| place.asks.is_some());
    let first = ticket.places.partition_point(|place| place.asks.is_none());
    let asking = &ticket.places[first..];
    if asking.is_empty() {
        return Ok(None);
    }
    let attempts = asking.iter();
    let attempts = attempts.map(|place| place.attempt(ticket.core).patience(None));
    let mut pending = Pending::several(ticket.core, attempts.collect(), Want::Any);
    let core = ticket.core;
    let answer = {
        let asking = pin!(pending.ask());
        tokio::select! {
            biased; // without chance, a simulation replays
            answer = unless_closed(core, wait, asking) => answer?,
            // One of the keys for which it waits already.
            share = ticket.given() => return Ok(Some(share)),
        }
    };
    let retry_after = match answer {
        Ok(Reply::Granted(grants)) => {
            let (now, asking) = (Instant::now(), &ticket.places[first..]);
            let granted = pending.granted(&grants, |index| asking[index].terms, now);
            match granted.and_then(|mut holds| Some((grants[0].index, holds.pop()?))) {
                Some((index, held)) => {
                    let last = ticket.places.len() - 1;
                    ticket.places.swap(first + index, last);
                    return ticket.granted(held, now).map(Some);
                }
                None if wait.is_one_try() => return Err(answered_late().into()),
                None => None,
            }
        }
        Ok(Reply::Refused { retry_after, .. }) if wait.is_one_try() => {
            return Err(LockError::Busy {
                retry_after: Some(retry_after),
            });
        }
        Ok(Reply::Refused { retry_after, .. }) => Some(retry_after),
        Err(error) if wait.is_one_try() || error.is_final() => return Err(error.into()),
        Err(_) => None,
    };
    drop(pending);
    for _ in first..ticket.places.len() {
        let place = ticket.places.remove(first);
        if let Some(share) = ticket.stand(place, retry_after, None, None)? {
            return Ok(Some(share));
        }
    }
    Ok(None)
}

/// Picks the reason with the better prospect: a lease that ends, before a full queue.
fn sooner(one: Option<LockError>, other: LockError) -> LockError {
    match (one, other) {
        (Some(LockError::Busy { retry_after: one }), LockError::Busy { retry_after: other }) => {
            LockError::Busy {
                retry_after: one.into_iter().chain(other).min(),
            }
        }
        (Some(LockError::Busy { retry_after }), _) => LockError::Busy { retry_after },
        (_, other) => other,
    }
}

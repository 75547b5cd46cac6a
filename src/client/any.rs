//! One of several keys.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::acquire::{Asker, Step, enter, unless_closed};
use super::ticket::Ticket;
use super::wait::{Wait, over};
use crate::contend::{Pending, Reply, answered_late, attempt};
use crate::error::LockError;
use crate::lock::{LockKey, LockMode};
use crate::release::{Core, Share};
use crate::store::Want;
use crate::table::Terms;

/// Takes one of several keys: the first that this process can share, or that the store grants.
pub(super) async fn take_any(
    core: &Arc<Core>,
    keys: &[(&LockKey, LockMode)],
    terms: &Terms,
    wait: Wait,
    now: Instant,
) -> Result<Share, LockError> {
    let terms = keys.iter().map(|(_, mode)| terms.in_mode(*mode));
    let terms: Vec<_> = terms.collect();
    let mut ticket = Ticket::new(core, now);
    let (mut askers, mut refused) = (Vec::new(), None);
    for ((key, _), terms) in keys.iter().zip(&terms) {
        match enter(core, key, terms, &mut ticket, now) {
            Ok(Some(Step::Share(share))) => return Ok(share),
            Ok(Some(Step::Ask(asker))) => askers.push(asker),
            Ok(Some(Step::Wait(_)) | None) => {}
            Err(error @ (LockError::Busy { .. } | LockError::Overloaded)) => {
                refused = Some(sooner(refused, error));
            }
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if askers.is_empty() && ticket.is_idle() => return Err(error),
        _ => {}
    }
    if !askers.is_empty() {
        match ask_any(core, askers, &mut ticket, wait).await? {
            Some(share) => return Ok(share),
            None if ticket.is_idle() => return Err(over(None)),
            None => {}
        }
    }
    ticket.wait(wait).await
}

/// Asks for the first free one of several keys. If none is, the request waits for all of them.
async fn ask_any<'a>(
    core: &Arc<Core>,
    mut askers: Vec<Asker<'a>>,
    ticket: &mut Ticket<'a>,
    wait: Wait,
) -> Result<Option<Share>, LockError> {
    let attempts = askers.iter().map(|asker| {
        let terms = Terms {
            max_waiters: None,
            ..asker.terms().clone()
        };
        attempt(core, asker.key(), &terms, asker.number())
    });
    let mut pending = Pending::several(core, attempts.collect(), Want::Any);
    let answer = unless_closed(core, wait, pin!(pending.ask())).await?;
    let retry_after = match answer {
        Ok(Reply::Granted(grants)) => {
            let now = Instant::now();
            let granted = pending.granted(&grants, |index| askers[index].terms(), now);
            match granted.and_then(|mut holds| Some((grants[0].index, holds.pop()?))) {
                Some((index, held)) => {
                    return askers.swap_remove(index).granted(held, now).map(Some);
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
    for mut asker in askers {
        match asker.stand_anew(ticket, retry_after) {
            Ok(Some(share)) => return Ok(Some(share)),
            Ok(None) | Err(LockError::Overloaded) => {}
            Err(error) => return Err(error),
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

//! The place of a new request.

use tokio::time::Instant;

use super::super::hold::LocalHold;
use super::super::wait_queue::{Head, WaitQueue};
use super::super::{At, Intent, NewShare, Terms};
use super::KeyState;
use crate::error::LockError;
use crate::lock::{HoldId, LockFamily, LockMode, Owner};
use crate::watchdog::Moment;

/// How many read holds of one key a process has in the store. Further readers join the youngest of them.
const MAX_READ_HOLDS: usize = 64;

/// The place of a request, by the present state, found under the mutex of the shard.
pub(in crate::queue) enum Placement {
    Grant(NewShare),
    Ask(Intent),
    InQueue,
    BehindOwner,
}

impl KeyState {
    /// Finds the request's place, and takes it where the request asks or shares. A request that asks is then to [begin](KeyState::begin),
    /// unless the store answers at once; one that waits is to [wait](KeyState::wait).
    pub(in crate::queue) fn place(
        &mut self,
        terms: &Terms,
        at: At,
    ) -> Result<Placement, LockError> {
        let mut nested = None;
        if let Some(owner) = &terms.owner {
            if let Some(grant) = self.rejoin(owner, terms, at.now)? {
                return Ok(Placement::Grant(grant));
            }
            nested = self.nested(owner, terms)?;
            let rest = self.rest.as_ref();
            if let Some(rest) = rest.filter(|rest| rest.owners.contains(owner.number())) {
                let siblings = rest.siblings.iter();
                let others = siblings.filter(|one| one.terms.is_of(owner)).count();
                terms.wait_behind(others, None)?;
                return Ok(Placement::BehindOwner);
            }
        }
        let asks = match terms.mode {
            _ if nested.is_some() => true,
            LockMode::Fair => {
                // The limit does not refuse a caller that does not wait: it asks once, and counts while it asks. It does not refuse
                // the first request that asks either, because that may be granted at once.
                let fair = &mut self.rest().fair;
                if terms.max_waiters.is_some() && *fair > 0 {
                    terms.wait_behind(*fair, None)?;
                }
                *fair += 1;
                true
            }
            LockMode::Permit(limit) => {
                let waits = terms.max_waiters.is_some();
                self.rest().permit.admit(limit.get() as usize, waits)
            }
            mode => {
                if mode == LockMode::Read
                    && let Some(grant) = self.share_read(terms, at)
                {
                    return Ok(Placement::Grant(grant));
                }
                let has_turn = self.has_turn_for_new(mode, at);
                if has_turn {
                    *self.head(mode) = Head::Asking;
                    self.note_in_store(at);
                }
                has_turn
            }
        };
        if !asks {
            let others = self.queue(terms.mode).map_or(0, WaitQueue::len);
            terms.wait_behind(others, self.remaining(terms.mode, at.now))?;
            return Ok(Placement::InQueue);
        }
        Ok(Placement::Ask(Intent {
            mode: terms.mode,
            owner: terms.owner.clone(),
            nested,
        }))
    }

    /// Joins a hold of the owner.
    ///
    /// If the owner has lost a hold, it gets that error first, in every mode, because its work continued without the
    /// lock.
    fn rejoin(
        &mut self,
        owner: &Owner,
        terms: &Terms,
        now: Instant,
    ) -> Result<Option<NewShare>, LockError> {
        let same = |mode: LockMode| {
            mode == terms.mode
                || mode.family() == LockFamily::Exclusive
                    && terms.mode.family() == LockFamily::Exclusive
        };
        let mut found = None;
        for hold in self.holds_mut().filter(|hold| hold.is_shared_by(owner)) {
            if hold.live.see_lost() {
                return Err(LockError::Lost);
            }
            if found.is_none() && same(hold.live.hold.mode) {
                found = Some(hold);
            }
        }
        let Some(hold) = found else {
            return Ok(None);
        };
        if terms.needs_token() && hold.live.token().is_none() {
            return Err(LockError::invalid(
                "the owner holds this key without a fencing token: ask for one at the outermost acquisition",
            ));
        }
        Ok(Some(hold.join(terms, now)))
    }

    /// The write hold under which the owner asks to read, if there is one.
    fn nested(&mut self, owner: &Owner, terms: &Terms) -> Result<Option<HoldId>, LockError> {
        let other_side = match terms.mode {
            LockMode::Read => LockMode::Write,
            LockMode::Write => LockMode::Read,
            LockMode::Reentrant | LockMode::Fair | LockMode::Permit(_) => return Ok(None),
        };
        let mut holds = self.holds_mut();
        let owned =
            holds.find(|hold| hold.live.hold.mode == other_side && hold.is_shared_by(owner));
        match owned {
            None => Ok(None),
            Some(_) if terms.mode == LockMode::Write => Err(LockError::Upgrade),
            Some(write) => {
                write.stay(true);
                Ok(Some(write.live.hold.id))
            }
        }
    }

    /// Joins the youngest read hold, if it is young enough or there are too many, unless a writer of this process waits.
    fn share_read(&mut self, terms: &Terms, at: At) -> Option<NewShare> {
        let queue = self.queue(LockMode::Write);
        let writer_waits = self.write.is_in_store() || queue.is_some_and(|queue| !queue.is_empty());
        if writer_waits {
            return None;
        }
        let mut reads = 0;
        let mut youngest: Option<&mut LocalHold> = None;
        for hold in self.holds_mut().filter(|hold| hold.is_open_read()) {
            reads += 1;
            let younger = youngest
                .as_ref()
                .is_none_or(|other| other.granted() < hold.granted());
            if younger && hold.suits(terms, at.now) {
                youngest = Some(hold);
            }
        }
        let youngest = youngest?;
        let is_young = Moment::from(at.now) < youngest.granted() + at.handover_limits.share_window;
        let open = is_young || reads >= MAX_READ_HOLDS;
        open.then(|| youngest.join(terms, at.now))
    }
}

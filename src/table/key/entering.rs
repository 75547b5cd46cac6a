//! A request comes, or has asked in vain.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Asks, Busy, Entered, InStore, Key, KeyAt, MAX_READ_HOLDS};
use crate::error::LockError;
use crate::limits::LAST_MOMENT;
use crate::lock::{LockFamily, LockMode, Owner};
use crate::table::line::{Side, Waiter};
use crate::table::shared::Shared;
use crate::table::{NewShare, Slot, Terms};

impl KeyAt<'_> {
    /// A request comes, with the `number` that it may ask and wait by. One that waits gets its answer in `slot`.
    ///
    /// # Errors
    ///
    /// `Busy` for a request that does not wait, and `Overloaded` for one too many, also if there is one key too many; `Lost`,
    /// `Upgrade` and `Invalid` because of the owner's own holds; `Shutdown`.
    pub(crate) fn enter(
        &mut self,
        number: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
    ) -> Result<Entered, LockError> {
        if self.closed {
            return Err(LockError::Shutdown);
        }
        if self.is_one_too_many {
            return Err(LockError::Overloaded);
        }
        if let Some(grant) = self.rejoin(terms)? {
            return Ok(Entered::Share(grant));
        }
        if let Some(grant) = self.share_read(terms) {
            // Its owner may wait with another request.
            self.join_owners(&grant.held);
            return Ok(Entered::Share(grant));
        }
        if self.key.may_ask(terms, self.now) {
            let side = Side::of(terms.mode);
            let is_beside = terms.mode.is_permit() && self.key.asking(side, self.now) > 0;
            self.key.in_store.push(InStore::Busy(Busy {
                number,
                owner: terms.owner.clone(),
                side,
                asks: Asks::ForHold,
                until: self.now + LAST_MOMENT,
            }));
            return Ok(Entered::Ask { is_beside });
        }
        match terms.max_waiters {
            None => {
                let retry_after = self.key.remaining(terms.mode, self.now);
                return Err(LockError::Busy { retry_after });
            }
            Some(most) if self.key.others(terms) >= most => return Err(LockError::Overloaded),
            Some(_) => {}
        }
        self.wait(number, terms, slot)
    }

    /// A request waits in the line of its side, unless it can share a hold of its owner.
    fn wait(
        &mut self,
        ticket: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
    ) -> Result<Entered, LockError> {
        if let Some(grant) = self.rejoin(terms)? {
            return Ok(Entered::Share(grant));
        }
        let side = Side::of(terms.mode);
        let slot = slot.get_or_insert_with(Slot::new).clone();
        slot.add();
        let line = self.key.line_mut(side);
        // One that stands again in a fair queue may find its task.
        let has_task = line.has_task(side, ticket);
        if has_task && line.is_empty() {
            // It waits until a grant is taken.
            line.wake(&mut self.out);
        }
        let start = (!has_task).then(|| line.start(side, ticket));
        line.push(Waiter {
            ticket,
            terms: terms.clone(),
            since: self.now,
            slot,
            placed: false,
            is_asked_for: false,
        });
        Ok(Entered::Wait { start })
    }

    /// Joins a hold of the owner.
    ///
    /// If the owner has lost a hold, it gets that error first, in every mode, because its work continued without the lock. A read
    /// under the owner's write is one more share of the write.
    pub(super) fn rejoin(&mut self, terms: &Terms) -> Result<Option<NewShare>, LockError> {
        let Some(owner) = &terms.owner else {
            return Ok(None);
        };
        let mut found = None;
        for shared in self.key.holds_mut() {
            if !shared.is_shared_by(owner) {
                continue;
            }
            if shared.is_lost() || shared.held.is_lost(self.now) {
                return Err(LockError::Lost);
            }
            let mode = shared.held.hold.mode;
            match (mode, terms.mode) {
                (LockMode::Read, LockMode::Write) => return Err(LockError::Upgrade),
                (LockMode::Write, LockMode::Read) => found = Some(shared),
                _ if mode == terms.mode => found = Some(shared),
                _ if mode.family() == LockFamily::Exclusive
                    && terms.mode.family() == LockFamily::Exclusive =>
                {
                    found = Some(shared);
                }
                _ => {}
            }
        }
        let Some(shared) = found else {
            return Ok(None);
        };
        if terms.needs_token() && shared.held.token().is_none() {
            return Err(LockError::invalid(
                "the owner holds this key without a fencing token: ask for one at the outermost acquisition",
            ));
        }
        Ok(Some(shared.join(&terms.owner)))
    }

    /// Joins the youngest read hold, if it is young enough or there are too many, unless a writer of this process waits.
    fn share_read(&mut self, terms: &Terms) -> Option<NewShare> {
        if terms.mode != LockMode::Read || self.key.wants(Side::Exclusive, self.now) {
            return None;
        }
        let mut reads = 0;
        let mut youngest: Option<&mut Shared> = None;
        let holds = self.key.holds_mut();
        for shared in holds.filter(|shared| shared.is_open_read()) {
            reads += 1;
            let is_younger = youngest
                .as_ref()
                .is_none_or(|other| other.granted < shared.granted);
            if is_younger && shared.admits(terms, self.now) {
                youngest = Some(shared);
            }
        }
        let youngest = youngest?;
        let is_young = self.now < youngest.granted + self.limits.share_window;
        (is_young || reads >= MAX_READ_HOLDS).then(|| youngest.join(&terms.owner))
    }

    /// The request `number` asked the store in vain, and waits now. `until`: when the holder's lease ends, if that is known. `leaves`:
    /// the request has something in the store, with which a task that starts goes on.
    ///
    /// # Errors
    ///
    /// Those of [`enter`](Self::enter), except `Busy` and `Overloaded`.
    pub(crate) fn refused(
        &mut self,
        number: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
        (until, leaves): (Option<Instant>, bool),
    ) -> Result<Entered, LockError> {
        self.key.no_more_asking(number);
        // Those that wait for it go on, also if it may not wait.
        self.wake();
        if self.closed {
            return Err(LockError::Shutdown);
        }
        let side = Side::of(terms.mode);
        if until.is_some() {
            self.key.line_mut(side).news(self.now, until);
        }
        let mut entered = self.wait(number, terms, slot)?;
        if let Entered::Wait { start } = &mut entered
            && side != Side::Fair
        {
            let line = self.key.line_mut(side);
            // The task makes room for one that goes on, if that was asked first: it has the better place.
            if leaves && line.asks.is_none_or(|place| number < place) {
                if start.is_none() {
                    line.replace_tasks(&mut self.out);
                    *start = Some(line.start(side, number));
                }
                line.asks = Some(number);
            }
        }
        if leaves {
            self.key.line_mut(side).placed(number);
        }
        Ok(entered)
    }
}

impl Key {
    /// How many requests wait before a new one: of its owner, if it waits for another of them. The one for which the store is asked
    /// does not count.
    fn others(&self, terms: &Terms) -> usize {
        let is_of_owner = |owner: &Option<Owner>| owner.is_some() && *owner == terms.owner;
        let waiting = self
            .waiters()
            .filter(|waiter| is_of_owner(&waiter.terms.owner))
            .count();
        let asks = self.all_busy().any(|busy| is_of_owner(&busy.owner));
        if asks || waiting > 0 {
            return waiting - usize::from(!asks);
        }
        self.waiting(Side::of(terms.mode))
    }

    /// Whether a new request asks the store itself.
    fn may_ask(&self, terms: &Terms, now: Instant) -> bool {
        let is_of_owner = |owner: &Option<Owner>| owner.is_some() && *owner == terms.owner;
        let mut others = self.all_busy().filter(|busy| now < busy.until);
        let waits_for_owner = others.any(|busy| is_of_owner(&busy.owner))
            || self
                .waiters()
                .any(|waiter| is_of_owner(&waiter.terms.owner));
        if waits_for_owner {
            return false;
        }
        let side = Side::of(terms.mode);
        let waits = terms.max_waiters.is_some();
        let line = self.line(side);
        let is_behind = line.is_some_and(|line| !line.is_empty());
        // For a request that waits, releases count too: it is refused before they are answered.
        let is_busy = || match waits {
            true => self.until(side, |_| true).any(|until| now < until),
            false => self.asking(side, now) > 0,
        };
        match terms.mode {
            LockMode::Permit(limit) => {
                let is_refused = line.is_some_and(|line| line.was_refused() && !line.is_empty());
                let has_room = !is_behind && self.asking(side, now) < limit.get() as usize;
                !is_refused && (!waits || has_room)
            }
            LockMode::Read if waits => !is_behind && !is_busy(),
            // It cannot share what others ask for, so it asks beside them.
            LockMode::Read => {
                let asking = self.asking(side, now);
                let has_room = asking == 0 || asking + self.holds().count() < MAX_READ_HOLDS;
                !is_behind && has_room
            }
            LockMode::Fair => {
                !waits || !is_behind && self.asking(side, now) == 0 && self.holds().next().is_none()
            }
            LockMode::Reentrant | LockMode::Write => {
                !is_behind && !is_busy() && self.own_hold(terms.mode).is_none()
            }
        }
    }
}

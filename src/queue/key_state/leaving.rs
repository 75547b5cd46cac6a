//! The end of shares and of holds.

use std::sync::Arc;

use super::super::departed::NextTurn;
use super::super::hold::LocalHolder;
use super::super::wait_queue::{Head, WaitQueue};
use super::super::{At, Effect};
use super::KeyState;
use crate::lock::LockMode;
use crate::store::Wakeups;
use crate::watchdog::LiveHold;

/// The decision of [`KeyState::leave`].
pub(in crate::queue) enum Left {
    /// The hold continues: others share it, or it was handed over to the next waiter.
    LivesOn(Vec<Effect>),
    /// The hold must be released in the store. Requests of its queue wait until the release was sent, or takes too long; requests
    /// of its owner, if the hold is nested, wait until it is done.
    Release(NextTurn),
}

impl KeyState {
    /// One share of a hold ends. `pass_on`: the hold may be handed over.
    pub(in crate::queue) fn leave(
        &mut self,
        live: &Arc<LiveHold>,
        holder: &LocalHolder,
        pass_on: bool,
        at: At,
    ) -> Left {
        let hold = self.hold_of(live).expect("the hold of a share is there");
        if hold.leave(holder) {
            return Left::LivesOn(Vec::new());
        }
        if pass_on && let Some(effects) = self.pass(live, at) {
            return Left::LivesOn(effects);
        }
        let hold = self.remove(live).expect("it was there");
        let mode = live.hold.mode;
        if hold.is_nested() {
            self.begin(&holder.owner);
            return Left::Release(NextTurn::Nested(holder.owner.clone()));
        }
        if hold.is_detached() || !mode.is_handed_over() {
            return Left::Release(NextTurn::None);
        }
        if at.at_once && self.queue(mode).is_none_or(WaitQueue::has_not_waited) {
            // No request of this process waits for the release. One that enters before it asks the store itself, is refused,
            // and is woken by the release as that of another process is.
            *self.head(mode) = Head::Idle;
            return Left::Release(NextTurn::None);
        }
        *self.head(mode) = Head::Releasing;
        self.note_in_store(at);
        let wakeups = self.not_held_any_more(mode, at);
        Left::Release(NextTurn::OfSide {
            since: at.now,
            wakeups: wakeups.map(Box::new),
        })
    }

    /// This process held the lock until now: that is news for those who wait. Returns the subscription for the next turn.
    fn not_held_any_more(&mut self, mode: LockMode, at: At) -> Option<Wakeups> {
        let queue = self.queue_mut(mode)?;
        queue.note_answer(None, at.now);
        queue.take_wakeups()
    }

    /// Hands a hold without shares over to the next request of its queue, if the limits allow it.
    fn pass(&mut self, live: &Arc<LiveHold>, at: At) -> Option<Vec<Effect>> {
        let mode = live.hold.mode;
        // After a writer, the waiting readers have the turn.
        let readers_wait = mode == LockMode::Write && self.read != Head::Idle;
        if !mode.is_handed_over() || readers_wait {
            return None;
        }
        let queue = self.queue(mode)?;
        let (front, turn) = (queue.front()?, queue.turn().unwrap_or(at.handover_limits));
        let hold = self.holds().find(|hold| hold.is(live))?;
        if !hold.may_pass_to(&front.terms, at.now, turn) {
            return None;
        }
        let next = self.queue_mut(mode)?.pop()?;
        let owner = next.terms.owner.clone();
        let grant = self.hold_of(live)?.pass_to(&next.terms, at.now);
        let mut effects = vec![Effect::Grant(next, grant)];
        self.decided(&owner, at, &mut effects);
        Some(effects)
    }

    /// A shared hold was lost: its queue does not wait for its shares any more.
    pub(in crate::queue) fn lost(&mut self, live: &Arc<LiveHold>, at: At) -> Vec<Effect> {
        let Some(hold) = self.hold_of(live) else {
            return Vec::new();
        };
        let mode = live.hold.mode;
        if hold.detach() || !mode.is_handed_over() {
            return Vec::new();
        }
        let wakeups = self.not_held_any_more(mode, at);
        self.note_in_store(at);
        self.next(mode, wakeups.into()).into_iter().collect()
    }
}

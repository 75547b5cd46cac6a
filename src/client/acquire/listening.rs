//! How a request yields to other processes, listens, and sleeps.

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::super::queued_keys::Given;
use super::super::wait::sleep_until;
use super::Request;
use crate::cleanup::ANSWER_TIME;
use crate::error::LockError;
use crate::limits::LAST_MOMENT;
use crate::lock::LockMode;
use crate::store::Wakeups;

impl<'a> Request<'a> {
    /// Yields to the processes to which this process owes a turn. Returns `false` if the wait is over by then.
    pub(super) async fn let_others_go_first(&mut self) -> bool {
        while let Some(pause) = self.attempts.only_turn().and_then(|turn| turn.pause()) {
            self.listen_first().await;
            let now = Instant::now();
            // A short wait ends with a question.
            let rest = self.wait.until.saturating_duration_since(now);
            let until = now + pause.min(rest / 2);
            // If its subscription ends, the pause begins anew.
            self.sleep(until).await;
            let now = Instant::now();
            if now >= self.wait.until {
                return false;
            }
            if now >= until {
                break;
            }
        }
        true
    }

    /// Subscribes before a question. A store that takes longer than for an answer is asked before the subscription is confirmed.
    pub(super) async fn listen_first(&mut self) {
        self.listen(Instant::now() + LAST_MOMENT).await;
    }

    /// Subscribes to every key whose turn it has and that has no subscription for such an attempt, and waits for that until
    /// `until`. Returns whether the request asks again.
    pub(super) async fn listen(&mut self, until: Instant) -> bool {
        let (client, is_one) = (self.client, self.attempts.is_one());
        let until = until.min(self.wait.until);
        let silent = self.attempts.each().filter_map(|one| {
            let wakeups = one.turn.wakeups();
            // It may be over, or the previous request of the process may have left that of an attempt of another kind.
            if wakeups
                .as_ref()
                .is_some_and(|wakeups| wakeups.wakes(&one.attempt))
            {
                return None;
            }
            let mut attempt = one.attempt.clone();
            if !is_one && attempt.hold.mode == LockMode::Fair {
                // It has no place in a fair queue, so it listens on the channel for attempts without a place.
                attempt.hold.mode = LockMode::Reentrant;
            }
            Some(one.subscribing.renew(client, attempt, wakeups, until))
        });
        join_all(silent).await.contains(&true)
    }

    /// Waits for what the queues of the process give.
    ///
    /// What the process has left elsewhere does not keep the request from the store: it looks for that again and again.
    pub(super) async fn given(&mut self) -> Result<Given<'a>, LockError> {
        let mut look = self.wait.first_look();
        loop {
            let given = timeout_at(look.min(self.wait.until), self.queued.given()).await;
            match given {
                Ok(given) => return Ok(given),
                Err(_) if look >= self.wait.until => return Err(self.queued.in_vain()),
                Err(_) => self.queued.look(),
            }
            look = Instant::now() + ANSWER_TIME;
        }
    }

    /// Sleeps until a wake-up, the end of a subscription, or something from a queue of the process, at the latest until `until`.
    pub(super) async fn sleep(&mut self, until: Instant) {
        if let Some(turn) = self.attempts.only_turn() {
            if sleep_until(turn.wakeups().as_mut(), until).await {
                turn.count_message();
            }
            return;
        }
        let wakeups = self.attempts.each();
        let wakeups = wakeups.filter_map(|one| one.turn.wakeups().as_mut());
        let mut woken: FuturesUnordered<_> = wakeups.map(Wakeups::wait).collect();
        tokio::select! {
            biased; // without chance, a simulation replays
            Some(_) = woken.next() => {}
            () = self.queued.is_given() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

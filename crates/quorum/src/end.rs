//! Ending a hold in one store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tower_distributed_lock::error::StoreErrorKind::{Refused, Transient, Unreachable};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore, Released};

use crate::QuorumStore;
use crate::ballot::Vote;
use crate::ledger::{Entry, Left, Proof, is_unanswered};

/// The pauses between two withdrawals in a store that fails: the first, and the longest. They double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

impl<S: LockStore> QuorumStore<S> {
    pub(crate) async fn release_in(
        self,
        at: usize,
        hold: Hold,
        entry: Arc<Entry>,
    ) -> Vote<Released> {
        let mut left = entry.left[at].lock().await;
        let before = entry.known().proofs[at];
        if !matches!(before, Proof::Carries | Proof::Unsure) {
            // Nothing that counts is there. The rest is withdrawn.
            return Ok(HoldStatus::Gone.into());
        }
        let answer = self.shared.stores[at].release(&hold, None).await;
        let status = answer.as_ref().map(|released| released.status);
        if let Ok(HoldStatus::Held | HoldStatus::Gone) = status {
            *left = Left::Nothing;
        }
        let proof = &mut entry.known().proofs[at];
        *proof = match status {
            // The hold was given up meanwhile.
            _ if *proof == Proof::Absent => Proof::Absent,
            Ok(HoldStatus::Held) => Proof::Released,
            // An earlier release may have ended an unsure one.
            Ok(HoldStatus::Gone) if before == Proof::Carries => Proof::Absent,
            Err(error) if matches!(error.kind(), Unreachable | Transient | Refused) => before,
            _ => Proof::Unsure,
        };
        answer
    }

    /// Withdraws what is not wanted in a store, again and again, until the store has answered or the hold is forgotten.
    pub(crate) async fn clear_in(
        self,
        at: usize,
        attempt: Attempt,
        entry: Arc<Entry>,
        unanswered: bool,
    ) -> Vote<()> {
        let mut pause = PAUSE.0;
        loop {
            let mut left = entry.left[at].lock().await;
            let wanted = entry.known().wanted;
            if *left == Left::Nothing || wanted.is_none_or(|wanted| wanted == *left) {
                return Ok(());
            }
            if (*left, wanted) == (Left::Hold, Some(Left::Waiter)) {
                self.pace(&attempt.hold.key).pause(Duration::ZERO);
            }
            let unanswered = unanswered || *left == Left::Doubtful;
            let answer = self.shared.stores[at].withdraw(&attempt, unanswered).await;
            match &answer {
                Ok(()) => *left = Left::Nothing,
                // It may still take effect, even on a hold that the same attempt is granted later.
                Err(error) if is_unanswered(error) => *left = Left::Doubtful,
                Err(_) => {}
            }
            if answer.is_ok() || entry.known().is_over() {
                return answer;
            }
            drop(left);
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }
}

//! What a hold says of shares that have ended.

use uuid::Uuid;

use super::*;
use crate::lock::{HoldId, LockKey, LockMode};

fn held() -> Held {
    let (key, mode) = (LockKey::new("k"), LockMode::Write);
    let id = HoldId::new(Uuid::nil(), 1);
    let lease = Lease::default();
    let (route, granted) = (Route::default(), lease.duration());
    let hold = Hold { key, mode, id };
    Held::new(
        hold,
        lease,
        route,
        None,
        Instant::now() + valid_for(granted),
    )
}

/// The store may have carried it at the question, and not at the end of the share.
#[test]
fn a_share_is_confirmed_by_a_later_question_alone() {
    let held = held();
    let early = held.question();
    let last = held.latest_question();
    held.answered(early, HoldStatus::Held, None);
    assert!(held.verdict(last).is_none(), "it is not known yet");
    let later = held.question();
    held.answered(later, HoldStatus::Held, None);
    assert!(matches!(held.verdict(last), Some(Ok(()))));
}

#[test]
fn a_loss_that_is_noticed_after_its_release_began_is_none() {
    let mut held = Arc::new(held());
    let _observer = held.clone();
    let (is_held, question, _) = held.begin_release(Instant::now());
    assert!(is_held);
    assert!(!held.lose(), "the release decides");
    held.finish(question, End::Released);
    assert!(!held.is_lost(Instant::now()));
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, is_found};

    #[test]
    fn a_question_that_confirms_by_the_time_of_its_answer_is_found() {
        is_found(
            Mutant::HeldThroughTheAnswer,
            a_share_is_confirmed_by_a_later_question_alone,
        );
    }

    #[test]
    fn a_loss_that_overrules_a_release_is_found() {
        is_found(
            Mutant::ReleaseOverruled,
            a_loss_that_is_noticed_after_its_release_began_is_none,
        );
    }
}

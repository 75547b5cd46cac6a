//! What a hold says of shares that have ended.

use uuid::Uuid;

use super::*;
use crate::exploration::is_found;
use crate::lock::{HoldId, LockKey, LockMode};

fn held() -> Held {
    let (key, mode) = (LockKey::new("k"), LockMode::Write);
    let id = HoldId::new(Uuid::nil(), 1);
    let lease = Lease::default();
    let (route, granted) = (Route::default(), lease.duration());
    let hold = Hold { key, mode, id };
    Held::new(hold, lease, route, None, Instant::now(), granted)
}

/// The store may have carried it at the question, and not at the end of the share.
fn a_question_before_the_end_of_a_share_does_not_confirm() {
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
fn a_share_is_confirmed_by_a_later_question_alone() {
    a_question_before_the_end_of_a_share_does_not_confirm();
    is_found(
        Mutant::HeldThroughTheAnswer,
        a_question_before_the_end_of_a_share_does_not_confirm,
    );
}

fn a_release_decides() {
    let held = held();
    let (is_held, question, _) = held.begin_release();
    assert!(is_held);
    assert!(!held.lose(), "the release decides");
    held.finish(question, End::Released);
    assert!(!held.is_lost(Instant::now()));
}

#[test]
fn a_loss_that_is_noticed_after_its_release_began_is_none() {
    a_release_decides();
    is_found(Mutant::ReleaseOverruled, a_release_decides);
}

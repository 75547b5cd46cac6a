//! What a hold says of itself, and of shares that have ended.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::time::advance;
use uuid::Uuid;

use super::*;
use crate::error::StoreErrorKind;
use crate::lock::{HoldId, LockKey, LockMode};

mod minimum;
mod renewals;

const LEASE: Duration = Duration::from_secs(30);
const RENEWED: Lease = Lease::Renewed(LEASE);
const FIXED: Lease = Lease::Fixed(LEASE);
const TICK: Duration = Duration::from_millis(1);

fn held() -> Held {
    held_for(RENEWED, None)
}

/// One that is granted now.
fn held_for(lease: Lease, token: Option<u64>) -> Held {
    let (key, mode) = (LockKey::new("k"), LockMode::Write);
    let id = HoldId::new(Uuid::nil(), 1);
    let until = Instant::now() + valid_for(lease.duration());
    let hold = Hold { key, mode, id };
    let token = token.map(FencingToken::new);
    Held::new(hold, lease, Route::default(), token, until)
}

/// A question is asked and answered now.
fn renews(held: &Held, lease: Duration) -> bool {
    let sent = Some((Instant::now(), lease));
    held.answered(held.question(), HoldStatus::Held, sent)
}

fn unknown() -> StoreError {
    StoreError::new(StoreErrorKind::Unanswered, "no answer")
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What the keeper does, as text.
fn due(held: &Held, now: Instant) -> String {
    match held.due(now) {
        Due::Nothing => "nothing".into(),
        Due::Over => "over".into(),
        Due::Release => "release".into(),
        Due::Wait(until) => format!("wait {:?}", until.saturating_duration_since(now)),
        Due::Renew => "renew".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_lost_at_its_deadline() {
    let held = held();
    let deadline = held.deadline();
    assert_eq!(deadline, Instant::now() + valid_for(LEASE));
    assert!(held.is_open(deadline - TICK) && !held.is_lost(deadline - TICK));
    assert!(!held.is_open(deadline) && held.is_lost(deadline));
    assert!(!held.was_lost(), "it is not noticed yet");
    assert!(!held.has_ended());
    assert!(held.lose());
    assert!(!held.lose(), "only once");
    assert!(held.was_lost() && held.has_ended());
    assert!(held.is_lost(Instant::now()) && !held.is_open(Instant::now()));
}

/// The margin is for the drift of two clocks, so it must not be the lesser of the two parts.
#[test]
fn a_lease_is_valid_for_one_percent_and_two_milliseconds_less() {
    let valid = valid_for(Duration::from_secs(30));
    assert_eq!(valid, Duration::from_millis(30_000 - 300 - 2));
    assert_eq!(valid_for(TICK), Duration::ZERO, "none is left");
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_in_time_moves_the_deadline() {
    let held = held();
    advance(LEASE / 3).await;
    assert!(!renews(&held, LEASE));
    assert_eq!(held.deadline(), Instant::now() + valid_for(LEASE));
    // A check confirms, and renews nothing.
    advance(LEASE / 3).await;
    let (before, check) = (held.deadline(), held.question());
    assert!(!held.answered(check, HoldStatus::Held, None));
    assert_eq!(held.deadline(), before);
    // A renewal for less, as at a limit or after a minimum, shortens nothing in the store.
    renews(&held, LEASE / 10);
    assert_eq!(held.deadline(), before);
    advance(before - Instant::now()).await;
    renews(&held, LEASE);
    assert_eq!(held.deadline(), before, "it is over");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_overtaken_moves_nothing() {
    let held = held();
    let (early, late) = (held.question(), held.question());
    let now = Instant::now();
    held.answered(late, HoldStatus::Held, Some((now, 2 * LEASE)));
    held.answered(early, HoldStatus::Held, Some((now, LEASE)));
    assert_eq!(held.deadline(), now + valid_for(2 * LEASE));
    held.answered(late, HoldStatus::Held, Some((now, LEASE)));
    assert_eq!(
        held.deadline(),
        now + valid_for(2 * LEASE),
        "nor does a repetition"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_moves_nothing_after_the_end() {
    let mut ended = Arc::new(held());
    let _observer = ended.clone();
    let deadline = ended.deadline();
    ended.begin_release(Instant::now());
    advance(TICK).await;
    renews(&ended, LEASE);
    assert_eq!(ended.deadline(), deadline);
}

#[tokio::test(start_paused = true)]
async fn gone_is_a_loss_unless_a_release_has_begun() {
    let held = held();
    let question = held.question();
    assert!(!held.answered(question, HoldStatus::Unknown, None));
    assert!(held.answered(question, HoldStatus::Gone, None));
    assert!(!held.has_ended(), "its caller decides");
    assert!(held.lose());
    assert!(!held.answered(question, HoldStatus::Gone, None));
    let mut released = Arc::new(self::held());
    released.begin_release(Instant::now());
    assert!(!released.answered(question, HoldStatus::Gone, None));
    assert!(!released.has_ended());
}

#[tokio::test(start_paused = true)]
async fn the_end_is_the_verdict_of_what_no_answer_confirms() {
    for (end, expected) in [
        (End::Released, Ok(())),
        (End::Lost, Err(LockError::Lost)),
        (End::Unknown(unknown()), Err(unknown().into())),
    ] {
        let mut held = Arc::new(held());
        let observer = held.clone();
        let (_, question) = held.begin_release(Instant::now());
        let last = held.latest_question();
        assert!(held.verdict(last).is_none());
        let mut confirmed = pin!(observer.confirmed(last));
        assert!(poll(confirmed.as_mut()).is_pending());
        held.finish(question, end);
        let verdict = held.verdict(last).expect("it has ended");
        assert_eq!(format!("{verdict:?}"), format!("{expected:?}"));
        assert_eq!(format!("{:?}", confirmed.await), format!("{expected:?}"));
        held.finish(question, End::Lost);
        let again = held.verdict(last).expect("it has ended");
        assert_eq!(
            format!("{again:?}"),
            format!("{expected:?}"),
            "the first end stays"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_confirms_the_shares_that_ended_before_it() {
    let mut held = Arc::new(held());
    let _observer = held.clone();
    let last = held.latest_question();
    let (_, question) = held.begin_release(Instant::now());
    held.finish(question, End::Released);
    assert!(matches!(held.verdict(last), Some(Ok(()))));
    assert!(!held.was_lost());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_loss_hear_of_no_release() {
    for (lost, end) in [(true, End::Lost), (false, End::Released)] {
        let mut held = Arc::new(held());
        let observer = held.clone();
        let mut waits = pin!(observer.lost());
        assert!(poll(waits.as_mut()).is_pending());
        let (_, question) = held.begin_release(Instant::now());
        held.finish(question, end);
        assert_eq!(poll(waits.as_mut()).is_ready(), lost);
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_hold_that_is_over_confirms_nothing() {
    let (mut alone, mut seen) = (Arc::new(held()), Arc::new(held()));
    let _observer = seen.clone();
    let deadline = seen.deadline();
    advance(deadline - TICK - Instant::now()).await;
    let (is_held, first) = alone.begin_release(Instant::now());
    assert!(is_held);
    let (is_held, second) = alone.begin_release(Instant::now());
    assert!(!is_held, "it has begun");
    assert!(first < second);
    advance(TICK).await;
    let (is_held, ..) = seen.begin_release(deadline - TICK);
    assert!(!is_held, "by the clock, not by its caller");
}

#[tokio::test(start_paused = true)]
async fn a_token_rises_with_each_hand_over() {
    assert_eq!(held().token(), None);
    let held = held_for(RENEWED, Some(7));
    held.hand_over(None, Instant::now());
    assert_eq!(held.token(), Some(FencingToken::new(8)));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_over_says_why() {
    let mut held = Arc::new(held());
    let deadline = held.deadline();
    assert_eq!(held.why_over(), "not_renewed");
    assert_eq!(held_for(FIXED, None).why_over(), "lease_over");
    let margin = LEASE - valid_for(LEASE);
    held.granted(Some(deadline + margin), Instant::now());
    assert_eq!(held.why_over(), "max_hold");
    held.granted(Some(deadline + margin + TICK), Instant::now());
    assert_eq!(held.why_over(), "not_renewed");
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
    let (is_held, question) = held.begin_release(Instant::now());
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

/// One that stands in for a broken executor's, and for a test's.
struct Wakes {
    panics: bool,
    woken: AtomicU32,
}

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "a waker of the test");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_no_other_from_hearing_of_a_loss() {
    let held = held();
    let wakers = [true, false, true, false].map(|panics| {
        Arc::new(Wakes {
            panics,
            woken: AtomicU32::new(0),
        })
    });
    let mut waits: Vec<_> = wakers.iter().map(|_| Box::pin(held.lost())).collect();
    for (wait, waker) in waits.iter_mut().zip(&wakers) {
        let waker = Waker::from(waker.clone());
        let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    assert!(held.lose());
    for waker in &wakers {
        assert_eq!(waker.woken.load(Ordering::Relaxed), 1);
    }
}

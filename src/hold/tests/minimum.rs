//! Holds that are kept for a least time.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_hold_is_kept_until_its_minimum_is_over() {
    let held = held();
    let now = Instant::now();
    let until = now + LEASE * 2;
    assert_eq!(held.longest_rest(now), LEASE);
    held.asks_until(until);
    assert_eq!(held.longest_rest(now), LEASE * 2);
    assert_eq!(held.leave(now), None, "the store has not said that");
    held.was_not_asked();
    assert_eq!(held.longest_rest(now), LEASE);
    assert!(held.keep_until(until));
    assert!(held.keep_until(now), "nor does a shorter minimum");
    held.asks_until(until + LEASE);
    held.was_not_asked();
    assert_eq!(held.longest_rest(now), LEASE * 2, "the store keeps it");
    assert_eq!(due(&held, now), "renew", "it is held");
    assert_eq!(held.leave(until), None, "it is over");
    assert_eq!(held.leave(now), Some(until));
    assert!(!held.keep_until(until), "its last share has ended");
    assert!(!held.was_asked(), "it is renewed no more");
    assert_eq!(due(&held, until - TICK), format!("wait {TICK:?}"));
    assert_eq!(due(&held, until), "release");
    assert_eq!(due(&held, until), "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_left_confirms_its_shares_and_may_be_lost() {
    for (status, is_confirmed) in [(HoldStatus::Held, true), (HoldStatus::Gone, false)] {
        let held = held();
        let until = Instant::now() + LEASE * 2;
        assert!(held.keep_until(until));
        let last = held.latest_question();
        assert_eq!(held.leave(Instant::now()), Some(until));
        assert!(held.verdict(last).is_none());
        if held.answered(held.question(), status, None) {
            assert!(held.lose());
        }
        let verdict = held.verdict(last).expect("it is known");
        assert_eq!(verdict.is_ok(), is_confirmed, "{verdict:?}");
        assert_eq!(held.was_lost(), !is_confirmed);
        let at_its_end = if is_confirmed { "release" } else { "nothing" };
        assert_eq!(due(&held, until), at_its_end);
    }
}

/// The store may have ended it at its minimum: a share that was not confirmed until then was perhaps held.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_hold_that_was_left_loses_nothing() {
    for end in [End::Lost, End::Released] {
        let is_released = matches!(end, End::Released);
        let mut held = Arc::new(held());
        let _observer = held.clone();
        let until = Instant::now() + LEASE * 2;
        assert!(held.keep_until(until));
        let last = held.latest_question();
        held.leave(Instant::now());
        advance(LEASE * 2).await;
        assert_eq!(due(&held, until), "release");
        let (is_held, question) = held.begin_release(Instant::now());
        assert!(!is_held && !held.lose());
        held.finish(question, end);
        match held.verdict(last).expect("it has ended") {
            Ok(()) => assert!(is_released),
            Err(error) => assert!(matches!(error, LockError::Unavailable(_)) && !is_released),
        }
    }
}

//! When a hold is renewed.

use super::*;

#[tokio::test(start_paused = true)]
async fn renewals_are_cut_at_the_limit_and_end_with_it() {
    let mut held = Arc::new(held());
    let limit = Instant::now() + LEASE * 4 / 3;
    held.granted(Some(limit), Instant::now());
    assert_eq!(held.limit(), Some(limit));
    assert_eq!(due(&held, Instant::now()), "renew");
    assert_eq!(held.renewal(Instant::now()), Some(LEASE));
    assert!(held.was_asked());
    advance(LEASE / 2).await;
    let (now, left) = (Instant::now(), limit - Instant::now());
    assert_eq!(held.renewal(now), Some(left));
    assert_eq!(due(&held, now), "renew");
    renews(&held, left);
    assert_eq!(held.deadline(), now + valid_for(left));
    assert!(held.was_asked());
    let rest = format!("wait {:?}", held.deadline() - now);
    assert_eq!(due(&held, now), rest, "another gains nothing");
    assert_eq!(held.renewal(now), None);
    assert_eq!(due(&held, held.deadline()), "over");
    assert_eq!(held.why_over(), "max_hold");
    assert_eq!(held_for(FIXED, None).renewal(now), None);
}

/// A renewal for longer was under way when the hold was handed over.
#[tokio::test(start_paused = true)]
async fn no_answer_moves_the_deadline_past_the_limit() {
    let held = held();
    let limit = Instant::now() + LEASE;
    held.hand_over(Some(limit), Instant::now());
    renews(&held, 2 * LEASE);
    assert_eq!(held.deadline(), limit);
}

#[tokio::test(start_paused = true)]
async fn one_renewal_is_under_way_at_a_time() {
    let held = held();
    let now = Instant::now();
    assert_eq!(due(&held, now), "renew");
    let rest = format!("wait {:?}", held.deadline() - now);
    assert_eq!(due(&held, now), rest);
    assert!(held.was_asked());
    assert_eq!(due(&held, now), "renew");
    assert_eq!(due(&held, held.deadline()), "over");
    assert!(held.lose());
    assert!(!held.was_asked());
    assert_eq!(due(&held, now), "nothing");
    assert_eq!(due(&held_for(FIXED, None), now), rest);
}

/// Otherwise it would not share the question of those that are due before it, or be visited although there is nothing to do.
#[tokio::test(start_paused = true)]
async fn only_a_renewal_that_is_due_comes_early() {
    let (held, now) = (held(), Instant::now());
    assert_eq!(held.early(now), LEASE / 30);
    assert_eq!(due(&held, now), "renew");
    assert_eq!(held.early(now), Duration::ZERO, "it is under way");
    assert!(held.was_asked());
    assert_eq!(held.early(now), LEASE / 30);
    assert_eq!(held_for(FIXED, None).early(now), Duration::ZERO);
    let mut released = Arc::new(held);
    released.begin_release(now);
    assert_eq!(released.early(now), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_first_visit_is_within_a_third_of_the_lease() {
    let now = Instant::now();
    for _ in 0..200 {
        let mut held = Arc::new(held());
        let after = held.granted(None, now) - now;
        assert!(LEASE / 3 / 5 < after && after <= LEASE / 3, "{after:?}");
        let mut fixed = Arc::new(held_for(FIXED, None));
        assert_eq!(fixed.granted(None, now), fixed.deadline());
        // It was granted for a shorter time.
        held.change(|state| state.deadline = now + TICK);
        assert_eq!(held.granted(None, now), now + TICK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_handed_over_late_is_visited_unless_it_is_being_renewed() {
    let (held, now) = (held(), Instant::now());
    let late = held.deadline() - LEASE * 2 / 3 + TICK;
    let limit = Some(now + LEASE);
    assert!(!held.hand_over(limit, now), "it was just granted");
    assert!(!held.hand_over(limit, late - TICK));
    assert!(held.hand_over(limit, late));
    assert!(held.hand_over(None, late));
    due(&held, now);
    assert!(!held.hand_over(None, late));
    assert!(held.was_asked());
    assert!(held.hand_over(None, late));
    assert_eq!(held.renewal(late), Some(LEASE), "no limit is left");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_overdue_after_a_third_of_its_lease() {
    let (held, now) = (held(), Instant::now());
    assert_eq!(held.overdue(now + LEASE / 3), Duration::ZERO);
    assert_eq!(held.overdue(now + LEASE / 3 + TICK), TICK);
}

//! Renewals and checks.

use super::*;

#[tokio::test(start_paused = true)]
async fn renewal_needs_a_majority_and_never_creates() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    stores[0].forget();
    stores[1].set(Mood::Failing(StoreErrorKind::Unreachable));
    assert_eq!(
        renew(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Held
    );
    assert!(
        !stores[0].carries(&reentrant(1).hold).await,
        "it stays lost"
    );

    stores[2].forget();
    let answer = renew(&quorum, &reentrant(1)).await.unwrap();
    assert_eq!(answer, HoldStatus::Unknown, "two say yes, two no");
    stores[1].set(Mood::Well);
    assert_eq!(
        renew(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Held
    );
    stores[3].forget();
    assert_eq!(
        renew(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Gone
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewed_hold_lives_on_in_a_majority() {
    let (_, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    for _ in 0..4 {
        sleep(20 * SECOND).await;
        assert_eq!(
            renew(&quorum, &reentrant(1)).await.unwrap(),
            HoldStatus::Held
        );
    }
    refused(&quorum, &reentrant(2)).await;
    sleep(LEASE).await;
    granted(&quorum, &reentrant(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_needs_a_majority() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores[..2], Mood::Failing(StoreErrorKind::Unreachable));
    assert_eq!(
        check(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Held
    );
    stores[2].set(Mood::Failing(StoreErrorKind::Unreachable));
    let answer = check(&quorum, &reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unreachable);
    set(&stores, Mood::Well);
    for store in &stores[..3] {
        store.forget();
    }
    assert_eq!(
        check(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Gone
    );
}

/// The attempt of the first client to get another key.
fn other() -> Attempt {
    attempt_for("other", LockMode::Reentrant, 1)
}

fn renewal(attempt: &Attempt, lease: Duration) -> Renewal {
    Renewal::new(attempt.hold.clone(), lease)
}

/// Two holds: the first in three stores, of which one does not answer; the second in all stores.
async fn undecided_and_decided() -> (Vec<Scripted>, QuorumStore<Scripted>, [Attempt; 2]) {
    let (stores, quorum) = five();
    set(&stores[3..], Mood::Failing(StoreErrorKind::Unreachable));
    granted(&quorum, &reentrant(1)).await;
    set(&stores[3..], Mood::Well);
    granted(&quorum, &other()).await;
    stores[0].set(Mood::Failing(StoreErrorKind::Unreachable));
    (stores, quorum, [reentrant(1), other()])
}

#[tokio::test(start_paused = true)]
async fn an_undecided_renewal_does_not_fail_its_batch() {
    let (stores, quorum, holds) = undecided_and_decided().await;
    let batch = holds.each_ref().map(|attempt| renewal(attempt, LEASE));
    for _ in 0..4 {
        let answer = quorum.renew(&batch).await.unwrap();
        assert_eq!(answer, [HoldStatus::Unknown, HoldStatus::Held]);
        sleep(LEASE / 4 - SECOND).await;
    }
    stores[0].set(Mood::Well);
    let answer = quorum.renew(&batch).await.unwrap();
    assert_eq!(answer, [HoldStatus::Held; 2], "the undecided one was held");
}

#[tokio::test(start_paused = true)]
async fn an_undecided_check_is_not_answered_gone_because_others_are_decided() {
    let (stores, quorum, holds) = undecided_and_decided().await;
    let holds = holds.map(|attempt| attempt.hold);
    let answer = quorum.check(&holds).await.unwrap();
    assert_eq!(answer, [HoldStatus::Unknown, HoldStatus::Held]);
    stores[0].set(Mood::Slow(SECOND));
    let answer = quorum.check(&holds).await.unwrap();
    assert_eq!(
        answer,
        [HoldStatus::Unknown, HoldStatus::Held],
        "a store is slow"
    );
    stores[0].set(Mood::Well);
    let answer = quorum.check(&holds).await.unwrap();
    assert_eq!(answer, [HoldStatus::Held; 2]);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_lease_does_not_bound_the_time_for_the_others() {
    let (stores, quorum) = five();
    let attempts = [reentrant(1), other()];
    for attempt in &attempts {
        granted(&quorum, attempt).await;
    }
    set(&stores, Mood::Slow(100 * MS));
    let batch = [renewal(&attempts[0], 4 * MS), renewal(&attempts[1], LEASE)];
    let answer = quorum.renew(&batch).await.unwrap();
    assert_eq!(answer[1], HoldStatus::Held);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_waits_for_an_undecided_hold_no_longer_than_a_quarter_of_its_own_lease() {
    let (stores, quorum, holds) = undecided_and_decided().await;
    stores[0].set(Mood::Slow(SECOND));
    let batch = [renewal(&holds[0], 80 * MS), renewal(&holds[1], LEASE)];
    let asked = Instant::now();
    let answer = quorum.renew(&batch).await.unwrap();
    assert_eq!(answer, [HoldStatus::Unknown, HoldStatus::Held]);
    assert_eq!(asked.elapsed(), 20 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_question_about_no_holds_has_no_answers() {
    let (_, quorum) = five();
    assert_eq!(quorum.check(&[]).await.unwrap(), []);
    assert_eq!(quorum.renew(&[]).await.unwrap(), []);
}

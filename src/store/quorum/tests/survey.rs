//! Hazards of renewing and checking.

use super::*;

#[tokio::test(start_paused = true)]
async fn renewal_needs_a_majority_and_never_creates() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    stores[0].forget();
    stores[1].set(Mood::Failing(StoreErrorKind::Unreachable));
    assert_eq!(renew(&quorum, &reentrant(1)).await.unwrap(), Standing::Held);
    assert!(
        !stores[0].carries(&reentrant(1).hold).await,
        "it stays lost"
    );

    stores[2].forget();
    let answer = renew(&quorum, &reentrant(1)).await;
    assert_eq!(
        kind(answer),
        StoreErrorKind::Unanswered,
        "two say yes, two no"
    );
    stores[1].set(Mood::Well);
    assert_eq!(renew(&quorum, &reentrant(1)).await.unwrap(), Standing::Held);
    stores[3].forget();
    assert_eq!(renew(&quorum, &reentrant(1)).await.unwrap(), Standing::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_hold_lives_on_in_a_majority() {
    let (_, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    for _ in 0..4 {
        sleep(20 * SECOND).await;
        assert_eq!(renew(&quorum, &reentrant(1)).await.unwrap(), Standing::Held);
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
    assert_eq!(check(&quorum, &reentrant(1)).await.unwrap(), Standing::Held);
    stores[2].set(Mood::Failing(StoreErrorKind::Unreachable));
    let answer = check(&quorum, &reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unreachable);
    set(&stores, Mood::Well);
    for store in &stores[..3] {
        store.forget();
    }
    assert_eq!(check(&quorum, &reentrant(1)).await.unwrap(), Standing::Gone);
}

#[tokio::test(start_paused = true)]
async fn late_grants_count_once_the_others_have_proved_that_there_was_no_gap() {
    for renewed in [false, true] {
        let (stores, quorum) = five();
        set(&stores[3..], Mood::Slow(SECOND));
        granted(&quorum, &reentrant(1)).await;
        set(&stores[3..], Mood::Well);
        sleep(SECOND).await;
        assert_eq!(carriers(&stores, &reentrant(1)).await, 5);
        if renewed {
            assert_eq!(renew(&quorum, &reentrant(1)).await.unwrap(), Standing::Held);
        } else {
            // It does not take a renewal.
            sleep(SECOND).await;
        }
        stores[0].forget();
        stores[1].forget();
        assert_eq!(check(&quorum, &reentrant(1)).await.unwrap(), Standing::Held);
        let released = quorum.release(&reentrant(1).hold).await.unwrap().standing;
        assert_eq!(released, Standing::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_hangs_on_a_dead_store_does_not_take_its_batch_along() {
    let (stores, quorum) = five();
    let first = reentrant(1);
    let second = Attempt {
        hold: Hold {
            key: LockKey::new("other"),
            ..first.hold.clone()
        },
        ..first.clone()
    };
    set(&stores[3..], Mood::Failing(StoreErrorKind::Unreachable));
    granted(&quorum, &first).await;
    set(&stores[3..], Mood::Well);
    granted(&quorum, &second).await;
    stores[0].set(Mood::Failing(StoreErrorKind::Unreachable));

    let batch = [&first, &second].map(|attempt| Renewal {
        hold: attempt.hold.clone(),
        lease: LEASE,
    });
    let answer = quorum.renew(&batch).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered, "it may come back");
    sleep(LEASE / 4).await;
    let answer = quorum.renew(&batch).await.unwrap();
    assert_eq!(answer, [Standing::Gone, Standing::Held]);

    let holds = [first.hold, second.hold];
    let answer = quorum.check(&holds).await.unwrap();
    assert_eq!(answer, [Standing::Gone, Standing::Held]);
}

#[tokio::test(start_paused = true)]
async fn a_question_about_nothing_has_no_answers() {
    let (_, quorum) = five();
    assert_eq!(quorum.check(&[]).await.unwrap(), []);
    assert_eq!(quorum.renew(&[]).await.unwrap(), []);
}

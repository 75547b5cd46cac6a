//! Fencing tokens: promise S6.

use super::*;

/// Tokens rise through grants, hand-overs and expired leases, in two clients.
pub async fn a_later_grant_has_a_larger_token(env: &Harness) {
    let [here, elsewhere] = env.both();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut guard = here.request().fenced().await.unwrap();
        for next in [here, here, elsewhere, here, elsewhere] {
            let next = env.waits(next.request().fenced()).await;
            tokens.push(guard.fencing_token().unwrap());
            guard.release().await.unwrap();
            guard = next.promptly().await;
        }
        tokens.push(guard.fencing_token().unwrap());
        guard.release().await.unwrap();

        let lapsing = here.request().fenced().lease(env.fixed());
        let lapsing = lapsing.await.unwrap();
        lapsing.lost().await;
        tokens.push(lapsing.fencing_token().unwrap());
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

pub async fn re_entry_keeps_the_token(env: &Harness) {
    let asking = env.here.owned();
    let outer = asking.clone().fenced().await.unwrap();
    let inner = asking.clone().fenced().await.unwrap();
    let plain = asking.await.unwrap();
    assert!(outer.fencing_token().is_some());
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    assert_eq!(outer.fencing_token(), outer.handle().fencing_token());
    drop((inner, plain));
    outer.release().await.unwrap();
}

pub async fn no_token_is_made_up_for_a_hold_without_one(env: &Harness) {
    let asking = env.here.owned();
    let plain = asking.clone().await.unwrap();
    assert_eq!(plain.fencing_token(), None);
    assert_err!(asking.fenced().await, Invalid);

    // A hold without a token is handed over without a token.
    let next = env.waits(env.here.request().fenced()).await;
    plain.release().await.unwrap();
    let next = next.promptly().await;
    assert!(next.fencing_token().is_some());
    next.release().await.unwrap();
}

pub async fn readers_and_permits_cannot_be_fenced(env: &Harness) {
    let asking = env.here.request().fenced().wait(Duration::ZERO);
    assert_err!(asking.await, Invalid);
    assert_eq!(env.asked().questions, 0);
}

//! Fencing tokens rise, even if the counter is lost or set back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncTypedCommands;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::{LockStore, Outcome};

use super::*;

const COUNTER: &str = "redisson_lock_token:{k}";

async fn token(store: &RedisStore, attempt: &Attempt) -> u64 {
    match store.acquire(attempt).await.unwrap() {
        Outcome::Granted { token: Some(token) } => token.value(),
        other => panic!("{other:?}"),
    }
}

fn with_tokens(mode: LockMode) -> Attempt {
    fenced(attempt("k", mode), Fencing::default())
}

#[tokio::test]
async fn tokens_rise_from_grant_to_grant_and_survive_the_loss_of_the_counter() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut last = now.as_micros() as u64 - 1_000_000;
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        for lose_the_counter in [false, true] {
            let holder = with_tokens(mode);
            let token = token(&store, &holder).await;
            assert!(token > last, "{mode:?}");
            last = token;
            assert_eq!(redis.get(COUNTER).await.unwrap(), Some(token.to_string()));
            assert_eq!(
                redis.pttl(COUNTER).await.unwrap().raw(),
                -1,
                "as Redisson leaves it"
            );
            assert!(releases(&store, &holder).await);
            if lose_the_counter {
                redis.del(COUNTER).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn reserved_tokens_are_given_to_no_other_and_a_larger_counter_is_continued() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ahead = now.as_micros() as u64 + 50_000_000;
    redis.set_ex(COUNTER, ahead, 100).await.unwrap();
    let reserving = fenced(
        attempt("k", LockMode::Reentrant),
        Fencing::new(Some(Duration::from_secs(100)), 16),
    );
    assert_eq!(token(&store, &reserving).await, ahead + 1);
    let ttl = server.dump().await[COUNTER].ttl.unwrap();
    assert!(ttl > Duration::from_secs(90) && ttl <= Duration::from_secs(100));
    assert!(releases(&store, &reserving).await);
    let next = with_tokens(LockMode::Reentrant);
    assert_eq!(token(&store, &next).await, ahead + 18);
    // A repeated question acquires once; the later token is valid as well.
    assert!(token(&store, &next).await > ahead + 18);
}

#[tokio::test]
async fn no_token_is_made_unless_it_is_asked_for_and_granted() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        let holder = attempt("k", mode);
        assert_eq!(
            store.acquire(&holder).await.unwrap(),
            Outcome::Granted { token: None }
        );
        let refused = with_tokens(mode);
        if mode == LockMode::Read {
            assert_eq!(
                store.acquire(&refused).await.unwrap(),
                Outcome::Granted { token: None }
            );
        } else {
            assert!(!asks(&store, &refused).await);
        }
        assert!(!server.dump().await.contains_key(COUNTER));
        store.withdraw(&refused, false).await.unwrap();
        assert!(releases(&store, &holder).await);
    }
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_a_conflict_and_grants_nothing() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        // Lua reads the last two as numbers.
        for text in ["seven", "nan", "inf"] {
            redis.set(COUNTER, text).await.unwrap();
            let kind = error_kind(&store, &with_tokens(mode)).await;
            assert_eq!(kind, StoreErrorKind::Conflict, "{mode:?} {text}");
        }
        redis.del(COUNTER).await.unwrap();
        redis.rpush(COUNTER, "seven").await.unwrap();
        assert_eq!(
            error_kind(&store, &with_tokens(mode)).await,
            StoreErrorKind::Conflict
        );
        redis.del(COUNTER).await.unwrap();
        assert!(server.dump().await.is_empty());
    }
}

/// S6. Tokens that are reserved may be ahead of the clock: the counter is kept until the clock has passed them.
#[tokio::test]
async fn a_short_retention_forgets_no_token_that_is_ahead_of_the_clock() {
    let (server, store) = server_and_store().await;
    let reserve = 60_000_000;
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let reserving = fenced(
            attempt("k", mode),
            Fencing::new(Some(Duration::from_millis(10)), reserve),
        );
        let first = token(&store, &reserving).await;
        assert!(releases(&store, &reserving).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = token(&store, &with_tokens(mode)).await;
        assert!(second > first + u64::from(reserve), "{mode:?}");
        server.connection().await.flushall().await.unwrap();
    }
}

/// Lua cannot count further: the next token would be the last one again.
#[tokio::test]
async fn a_counter_at_its_end_issues_no_token_twice() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    const LAST: u64 = (1 << 53) - 1;
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        redis.set(COUNTER, LAST - 1).await.unwrap();
        let last = with_tokens(mode);
        assert_eq!(token(&store, &last).await, LAST);
        assert!(releases(&store, &last).await);
        let kind = error_kind(&store, &with_tokens(mode)).await;
        assert_eq!(kind, StoreErrorKind::Conflict, "{mode:?}");
        assert_eq!(server.dump().await.len(), 1, "nothing is held");
    }
}

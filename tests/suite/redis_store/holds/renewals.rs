//! Renewals, and holds that lapse without one.

use super::*;

#[tokio::test]
async fn a_lease_ends_by_itself_and_each_reader_lapses_on_its_own() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        let hold = lasting(attempt("k", mode), Duration::from_millis(80));
        assert!(asks(&store, &hold).await);
        eventually("the lease ends", Duration::from_secs(10), async || {
            !holds(&store, &hold).await
        })
        .await;
        assert!(!releases(&store, &hold).await);
        assert_eq!(server.dump().await, Dump::new());
    }
    let short = lasting(attempt("k", LockMode::Read), Duration::from_millis(80));
    let long = attempt("k", LockMode::Read);
    assert!(asks(&store, &short).await);
    assert!(asks(&store, &long).await);
    eventually(
        "the short lease ends",
        Duration::from_secs(10),
        async || !holds(&store, &short).await,
    )
    .await;
    assert!(holds(&store, &long).await);
    assert!(!releases(&store, &short).await);
    assert!(releases(&store, &long).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn a_dead_reader_does_not_outlive_the_last_living_one() {
    let (server, store) = server_and_store().await;
    let dead = lasting(attempt("k", LockMode::Read), Duration::from_millis(80));
    let living = attempt("k", LockMode::Read);
    assert!(asks(&store, &dead).await && asks(&store, &living).await);
    eventually("it lapses", Duration::from_secs(10), async || {
        !holds(&store, &dead).await
    })
    .await;
    assert!(releases(&store, &living).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn a_released_reader_takes_its_longer_life_with_it() {
    let (server, store) = server_and_store().await;
    let short = lasting(attempt("k", LockMode::Read), Duration::from_secs(5));
    let long = attempt("k", LockMode::Read);
    assert!(asks(&store, &short).await && asks(&store, &long).await);
    assert!(releases(&store, &long).await);
    assert!(server.dump().await["k"].ttl.unwrap() <= Duration::from_secs(5));
    assert!(holds(&store, &short).await);
}

#[tokio::test]
async fn renewal_begins_leases_anew_and_creates_nothing() {
    let (server, store) = server_and_store().await;
    let short = Duration::from_secs(1);
    let held: Vec<_> = (0..250)
        .map(|n| lasting(attempt(format!("k{n}"), MODES[n % 4]), short))
        .collect();
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    let mut renewals: Vec<_> = held
        .iter()
        .map(|attempt| Renewal::new(attempt.hold.clone(), LEASE))
        .collect();
    for mode in MODES {
        renewals.push(Renewal::new(attempt("unknown", mode).hold, LEASE));
        // A hold of another owner.
        renewals.push(Renewal::new(attempt("k1", mode).hold, LEASE));
    }
    let standings = store.renew(&renewals).await.unwrap();
    assert_eq!(standings.len(), 258);
    assert!(standings[..250].iter().all(|s| *s == HoldStatus::Held));
    assert!(standings[250..].iter().all(|s| *s == HoldStatus::Gone));
    let dump = server.dump().await;
    assert!(!dump.contains_key("unknown"));
    for (key, entry) in dump {
        assert!(entry.ttl.unwrap() > Duration::from_secs(20), "{key}");
    }
    let mut redis = server.connection().await;
    redis.del("k7").await.unwrap();
    redis.set("k7", "something else").await.unwrap();
    let holds: Vec<_> = held.iter().map(|attempt| attempt.hold.clone()).collect();
    let checked = store.check(&holds).await.unwrap();
    let renewed = store.renew(&renewals).await.unwrap();
    for n in 0..250 {
        let expected = if n == 7 {
            HoldStatus::Gone
        } else {
            HoldStatus::Held
        };
        assert_eq!(checked[n], expected);
        assert_eq!(renewed[n], expected);
    }
    assert_eq!(store.renew(&[]).await.unwrap(), []);
    assert_eq!(store.check(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn a_renewed_reader_never_shortens_the_life_of_another() {
    let (server, store) = server_and_store().await;
    let (mut one, other) = (attempt("k", LockMode::Read), attempt("k", LockMode::Read));
    one.lease = Duration::from_secs(2);
    assert!(asks(&store, &one).await && asks(&store, &other).await);
    let renewal = Renewal::new(one.hold.clone(), Duration::from_secs(2));
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [HoldStatus::Held]);
    assert!(server.dump().await["k"].ttl.unwrap() > Duration::from_secs(20));
    eventually("it lapses", Duration::from_secs(10), async || {
        !holds(&store, &one).await
    })
    .await;
    assert!(holds(&store, &other).await);
}

#[tokio::test]
async fn a_late_renewal_for_less_shortens_no_life() {
    let (server, store) = server_and_store().await;
    for mode in [
        LockMode::Reentrant,
        LockMode::Fair,
        LockMode::Read,
        LockMode::Write,
    ] {
        let hold = attempt(mode.as_str(), mode);
        assert!(asks(&store, &hold).await);
        let before = server.dump().await;
        let late = Renewal::new(hold.hold.clone(), Duration::from_millis(60));
        assert_eq!(store.renew(&[late]).await.unwrap(), [HoldStatus::Held]);
        for (key, entry) in server.dump().await {
            let (ttl, was) = (entry.ttl.unwrap(), before[&key].ttl.unwrap());
            assert!(
                was - ttl < Duration::from_secs(15),
                "{key}: {was:?}, then {ttl:?}"
            );
        }
        assert!(releases(&store, &hold).await);
    }
}

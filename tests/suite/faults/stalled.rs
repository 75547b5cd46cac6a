//! A server that is up and makes no progress.

use std::time::{Duration, Instant};

use tower_distributed_lock::{Lease, LockClient, LockError, RedisStore};

use super::{
    MODES, PATIENT, SOON, client, command, errors, granted, hold_everything, outcome, told,
    works_again,
};
use crate::support::{Proxy, RedisServer, eventually};

/// S4, S5, L4. Patient requests are granted afterwards; others fail in time; holds that were not renewed are lost.
#[tokio::test]
async fn a_paused_server_serves_long_waits_fails_short_ones_and_confirms_no_lapsed_hold() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    for kind in ["WRITE", "ALL"] {
        // It sends each question once.
        let store = RedisStore::builder(proxy.url()).response_timeout(PATIENT);
        let locks = LockClient::new(store.connect().await.expect("Redis is there"));
        let mut guards = hold_everything(&locks).await;
        let kept = guards.split_off(guards.len() / 2);
        let lease = Lease::Renewed(Duration::from_millis(900));
        let lapsing = locks.lock("lapsing").lease(lease).await.expect("free");
        let first = lapsing.deadline();
        eventually("renewals have their connection", SOON, async || {
            lapsing.deadline() > first
        })
        .await;
        let began = Instant::now();
        command(&server, &["CLIENT", "PAUSE", "3000", kind]).await;
        let (sent, heard) = (proxy.requests.tally().passed, proxy.replies.tally().passed);

        let releasing: Vec<_> = guards
            .into_iter()
            .map(|guard| tokio::spawn(guard.release()))
            .collect();
        let patient = MODES.map(|mode| {
            let key = format!("new {}", mode.as_str());
            tokio::spawn(locks.lock(key).mode(mode).wait(PATIENT).acquire())
        });
        let brief = locks.lock("brief").wait(Duration::from_millis(200)).await;
        let error = brief.expect_err("no server answers");
        assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
        if began.elapsed() < Duration::from_millis(2500) {
            assert!(proxy.requests.tally().passed > sent, "{kind}: it was asked");
            let now = proxy.replies.tally().passed;
            assert_eq!(now, heard, "{kind}: it did not answer");
        }

        lapsing.lost().await;
        let released = lapsing.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        for waiting in patient {
            let guard = granted(waiting).await;
            assert!(began.elapsed() >= Duration::from_millis(2900));
            guard.release().await.expect("held");
        }
        for released in releasing {
            let released = outcome(released).await;
            // The pause may last longer than a caller waits.
            assert!(
                matches!(released, Ok(()) | Err(LockError::Unconfirmed(_))),
                "{released:?}"
            );
        }
        for guard in kept {
            guard.release().await.expect("held all the time");
        }
        works_again(&server, &[&locks]).await;
    }
}

/// S5, L4. A script of another client blocks the server until it is killed.
#[tokio::test]
async fn a_busy_server_is_waited_for_and_loses_nothing() {
    let server = RedisServer::builder()
        .config("lua-time-limit", "20")
        .start()
        .await;
    let locks = client(server.url()).await;
    let guards = hold_everything(&locks).await;
    let (mut other, mut killer) = (server.connection().await, server.connection().await);
    let looping = tokio::spawn(async move {
        let script = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .to_owned();
        script.exec_async(&mut other).await
    });
    eventually("it is busy", SOON, async || {
        let asked = locks.lock("new").wait(Duration::ZERO).await;
        // The future is dropped: a grant that it had is released when the server answers again.
        matches!(asked, Err(LockError::Unavailable(error)) if told(&error).contains("BUSY"))
    })
    .await;
    let patient = MODES.map(|mode| {
        let key = format!("new {}", mode.as_str());
        tokio::spawn(locks.lock(key).mode(mode).wait(PATIENT).acquire())
    });
    let releasing: Vec<_> = guards
        .into_iter()
        .map(|guard| tokio::spawn(guard.release()))
        .collect();
    let patient_for_several = [locks.lock_all(["a", "b"]), locks.lock_any(["x", "y"])]
        .map(|asking| tokio::spawn(asking.wait(PATIENT).acquire()));
    for brief in [
        locks.lock("brief"),
        locks.lock_all(["brief 1", "brief 2"]),
        locks.lock_any(["brief 3", "brief 4"]),
    ] {
        for wait in [Duration::ZERO, Duration::from_millis(200)] {
            let asked = brief.clone().wait(wait).await;
            assert!(matches!(asked, Err(LockError::Unavailable(_))), "{asked:?}");
        }
    }
    assert!(!patient.iter().any(|waiting| waiting.is_finished()));
    let kill = redis::cmd("SCRIPT").arg("KILL").to_owned();
    kill.exec_async(&mut killer).await.expect("it only reads");
    assert!(outcome(looping).await.is_err(), "it was killed");
    assert!(errors(&server, "BUSY").await > 8, "every request met it");
    for waiting in patient.into_iter().chain(patient_for_several) {
        granted(waiting).await.release().await.expect("held");
    }
    for released in releasing {
        outcome(released).await.expect("held all the time");
    }
    works_again(&server, &[&locks]).await;
}

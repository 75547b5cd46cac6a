//! Work that is done once: what is remembered, and what a repeat gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_distributed_lock::work::OnceError;
use tower_distributed_lock::{
    Lease, LockClient, LockError, LockMode, MemoryStore, Owner, RedisStore,
};

use crate::support::{RedisServer, Site};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Invoice {
    number: u32,
    to: String,
}

fn invoice(number: u32) -> Invoice {
    Invoice {
        number,
        to: "Ada".to_owned(),
    }
}

/// The sites that keep records, with a name that no other test uses.
async fn sites(name: &str) -> Vec<(Site, String)> {
    let sites = Site::all().await.into_iter();
    let sites = sites.filter(Site::keeps_records);
    sites.map(|site| (site, format!("once:{name}"))).collect()
}

#[tokio::test]
async fn a_value_is_remembered_and_a_repeat_gets_it_from_any_process() {
    for (site, name) in sites("remembered").await {
        let runs = AtomicUsize::new(0);
        let work = async |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, LockError>(invoice(7))
        };
        let ours = site.client().await;
        let first = ours.lock(&name).once(DAY, work).await.unwrap();
        assert_eq!((first.value, first.replayed), (invoice(7), false));
        for locks in [ours, site.client().await] {
            let repeat = locks.lock(&name).once(DAY, work).await.unwrap();
            assert_eq!((repeat.value, repeat.replayed), (invoice(7), true));
        }
        assert_eq!(runs.load(Ordering::Relaxed), 1, "{}", site.name());
        let admin = site.admin().await;
        assert!(!admin.inspect(&name).await.unwrap().is_held());
        assert!(admin.forget_record(&name).await.unwrap());
    }
}

#[tokio::test]
async fn a_repeat_waits_while_the_work_runs_and_does_not_run_it() {
    for (site, name) in sites("waiting").await {
        let runs = Arc::new(AtomicUsize::new(0));
        let mut repeats = Vec::new();
        for _ in 0..5 {
            let (locks, runs, name) = (site.client().await, runs.clone(), name.clone());
            repeats.push(tokio::spawn(async move {
                let work = async |_| {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok::<_, LockError>(runs.fetch_add(1, Ordering::Relaxed))
                };
                locks.lock(name).once(DAY, work).await.unwrap()
            }));
        }
        let mut replayed = 0;
        for repeat in repeats {
            let done = repeat.await.unwrap();
            assert_eq!(done.value, 0);
            replayed += usize::from(done.replayed);
        }
        assert_eq!(
            (runs.load(Ordering::Relaxed), replayed),
            (1, 4),
            "{}",
            site.name()
        );
        site.admin().await.forget_record(&name).await.unwrap();
    }
}

#[tokio::test]
async fn a_repeat_that_does_not_wait_is_busy_while_the_work_runs() {
    let locks = LockClient::new(MemoryStore::new());
    let inner = locks.clone();
    let outer = locks.lock("job").once(DAY, async |_| {
        let repeat = inner.lock("job").wait(Duration::ZERO);
        let repeat = repeat.once(DAY, async |_| Ok::<(), LockError>(())).await;
        assert!(
            matches!(repeat, Err(OnceError::NotStarted(LockError::Busy { .. }))),
            "{repeat:?}"
        );
        Ok::<_, LockError>(1)
    });
    assert_eq!(outer.await.unwrap().value, 1);
}

#[tokio::test]
async fn an_error_of_the_work_is_not_remembered_and_leaves_the_name_free() {
    for (site, name) in sites("failing").await {
        let locks = site.client().await;
        let request = || locks.lock(&name).wait(Duration::ZERO);
        for _ in 0..2 {
            let failed = request()
                .once(DAY, async |_| Err::<u32, _>("no paper"))
                .await;
            assert!(
                matches!(failed, Err(OnceError::Work("no paper"))),
                "{failed:?}"
            );
        }
        let done = request()
            .once(DAY, async |_| Ok::<_, &str>(1))
            .await
            .unwrap();
        assert!(!done.replayed);
        site.admin().await.forget_record(&name).await.unwrap();
    }
}

#[tokio::test]
async fn work_that_panics_leaves_the_name_free_and_nothing_remembered() {
    let locks = LockClient::new(MemoryStore::new());
    let panicking = locks.clone();
    let work = tokio::spawn(async move {
        let work = async |_| -> Result<u32, LockError> { panic!("a bug") };
        panicking.lock("job").once(DAY, work).await
    });
    assert!(work.await.unwrap_err().is_panic());
    let done = locks
        .lock("job")
        .once(DAY, async |_| Ok::<_, LockError>(1))
        .await;
    assert!(!done.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_is_dropped_and_nothing_is_remembered() {
    let locks = LockClient::new(MemoryStore::new());
    let admin = locks.admin().unwrap();
    let request = locks
        .lock("job")
        .lease(Lease::Renewed(Duration::from_secs(3)));
    let lost = request.once(DAY, async |_| {
        admin.force_unlock("job").await.unwrap();
        std::future::pending::<Result<u32, LockError>>().await
    });
    let lost = lost.await;
    assert!(matches!(lost, Err(OnceError::Lost)), "{lost:?}");
    // Gone at the very end: the release says so.
    let unseen = locks.lock("job").once(DAY, async |_| {
        admin.force_unlock("job").await.unwrap();
        Ok::<_, LockError>(1)
    });
    let unseen = unseen.await;
    assert!(
        matches!(unseen, Err(OnceError::Unconfirmed(LockError::Lost))),
        "{unseen:?}"
    );
    assert_eq!(admin.record("job").await.unwrap(), None);
    let done = locks
        .lock("job")
        .once(DAY, async |_| Ok::<_, LockError>(2))
        .await
        .unwrap();
    assert_eq!((done.value, done.replayed), (2, false));
}

#[tokio::test]
async fn a_store_that_ends_before_the_record_confirms_nothing() {
    let server = RedisServer::start().await;
    let locks = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let done = locks.lock("job").once(DAY, async |_| {
        drop(server);
        Ok::<_, LockError>(1)
    });
    let done = done.await;
    let Err(OnceError::Unconfirmed(LockError::Unconfirmed(_))) = done else {
        panic!("{done:?}");
    };
    let again = locks
        .lock("job")
        .once(DAY, async |_| Ok::<_, LockError>(1))
        .await;
    assert!(
        matches!(again, Err(OnceError::NotStarted(LockError::Unavailable(_)))),
        "{again:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_remembered_is_refused_before_the_work() {
    let work = async |_| -> Result<u32, LockError> { panic!("it must not run") };
    let quorum = [(), (), ()].map(|()| MemoryStore::new());
    let quorum = LockClient::new(tower_distributed_lock_quorum::QuorumStore::new(quorum).unwrap());
    let unsupported = quorum.lock("job").once(DAY, work).await;
    assert!(
        matches!(
            &unsupported,
            Err(OnceError::NotStarted(LockError::Unsupported(_)))
        ),
        "{unsupported:?}"
    );
    let locks = LockClient::new(MemoryStore::new());
    for refused in [
        locks.lock("job").once(Duration::ZERO, work).await,
        locks.lock(("job", LockMode::Read)).once(DAY, work).await,
        locks.lock("job").owner(&Owner::new()).once(DAY, work).await,
        locks.lock_all(["job", "other"]).once(DAY, work).await,
        locks.lock_any(["job", "other"]).once(DAY, work).await,
    ] {
        assert!(
            matches!(&refused, Err(OnceError::NotStarted(LockError::Invalid(_)))),
            "{refused:?}"
        );
    }
    let stored = locks
        .lock("job")
        .once(DAY, async |_| Ok::<_, LockError>("text".to_owned()));
    stored.await.unwrap();
    let unreadable = locks.lock("job").once(DAY, work).await;
    assert!(
        matches!(&unreadable, Err(OnceError::Unreadable(_))),
        "{unreadable:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_value_is_forgotten_when_its_retention_is_over() {
    let locks = LockClient::new(MemoryStore::new());
    let once = async || {
        let minute = Duration::from_secs(60);
        let done = locks
            .lock("job")
            .once(minute, async |_| Ok::<_, LockError>(()));
        done.await.unwrap().replayed
    };
    assert!(!once().await);
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(once().await);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!once().await);
}

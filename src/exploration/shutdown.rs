//! A request while its client is shut down: promises L7 and L8.

use std::time::Duration;

use shuttle::future::{block_on, spawn};

use super::explore;
use super::processes::{processes, until};
use super::store::Paced;
use crate::error::LockError;
use crate::store::LockStore;

const KEY: &str = "account:42";

/// A client of `store` asks for a lock and is shut down. If the key is `held` by another process, the request cannot be granted.
async fn ask_and_shut_down(store: &(impl LockStore + Clone), held: bool) {
    let mut clients = processes(2, store);
    let (client, other) = (clients.remove(0), clients.remove(0));
    let guard = match held {
        true => Some(other.lock(KEY).await.unwrap()),
        false => None,
    };
    let asking = spawn(client.lock(KEY).acquire());
    let ending = spawn(async move { client.shutdown(Duration::from_secs(3600)).await });
    match asking.await.unwrap() {
        Ok(_lost) if !held => {}
        Err(LockError::Shutdown) => {}
        answer => panic!("{answer:?}"),
    }
    ending.await.unwrap().unwrap();
    if let Some(guard) = guard {
        guard.release().await.unwrap();
    }
}

/// The time does not pass here, so that nothing expires.
fn leaves_nothing(at_once: bool) {
    for held in [true, false] {
        explore(500, move || {
            block_on(async {
                let store = Paced::default();
                match at_once {
                    true => ask_and_shut_down(&store.store, held).await,
                    false => ask_and_shut_down(&store, held).await,
                }
                until("the store is empty", || store.store.is_empty()).await;
            });
        });
    }
}

#[test]
fn a_request_that_a_shutdown_ends_leaves_nothing() {
    leaves_nothing(false);
}

/// Such a store may have refused the request, and keep its place in line, before the request sees the shutdown.
#[test]
fn a_request_that_a_shutdown_ends_leaves_nothing_in_a_store_that_answers_at_once() {
    leaves_nothing(true);
}

/// A guard whose release has begun is not lost.
#[test]
fn a_release_that_begins_before_a_shutdown_is_confirmed() {
    explore(500, || {
        block_on(async {
            let store = Paced::default();
            let client = processes(1, &store).remove(0);
            let guard = client.lock(KEY).await.unwrap();
            let releasing = spawn(async move {
                let releasing = guard.end(None);
                // The shutdown came first.
                let is_lost = releasing.is_lost();
                let released = releasing.await;
                assert!(is_lost || released.is_ok(), "{released:?}");
            });
            client.shutdown(Duration::from_secs(3600)).await.unwrap();
            releasing.await.unwrap();
        });
    });
}

//! One fair queue for both languages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tower_distributed_lock::Lease;

use super::redisson::Version;
use super::{Kind, LEASE, Meeting, Party};

/// No test waits for its end.
const LONG: Lease = Lease::Fixed(Duration::from_secs(30));

#[tokio::test]
async fn alternating_languages_are_served_in_the_order_in_which_they_came() {
    let meeting = Meeting::open().await;
    let mut queues = Vec::new();
    for holder in meeting.one_of_each() {
        queues.extend(meeting.names().map(|name| (holder.clone(), name)));
    }
    let served = queues
        .iter()
        .map(|(holder, name)| serve(&meeting, holder, name));
    join_all(served).await;
    let names = queues.iter().map(|(_, name)| name);
    meeting.nothing_is_left(names).await;
}

async fn serve(meeting: &Meeting, holder: &Party, name: &str) {
    let holder = meeting.another(holder);
    let hold = holder.lock(Kind::Fair, name, LONG).await;
    let served = Served::default();
    let mut waits = Vec::new();
    for waiter in [meeting.one_of_each(), meeting.one_of_each()].concat() {
        waits.push(served.enqueue(meeting, waiter, name).await);
    }
    hold.release().await;
    for wait in join_all(waits).await {
        wait.expect("every waiter is served");
    }
    served.in_order(6);
}

/// A waiter that gives up leaves the queue, at any position.
#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_others_in_order() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let meeting = Meeting::open().await;
    let names = meeting.names();
    let queues = names.iter().map(async |name| {
        let hold = meeting.rust().lock(Kind::Fair, name, LONG).await;
        let served = Served::default();
        let mut waits = Vec::new();
        let mut gone = Vec::new();
        for waiter in meeting.one_of_each() {
            let quitter = meeting.another(&waiter);
            let queued = meeting.queue(name).await.len();
            let lock = name.clone();
            gone.push(tokio::spawn(async move {
                let refused = quitter.try_lock(Kind::Fair, &lock, PATIENCE).await;
                assert!(refused.is_none(), "granted while it was held");
            }));
            meeting.until_queued(name, queued + 1).await;
            waits.push(served.enqueue(&meeting, waiter, name).await);
        }
        for quitter in join_all(gone).await {
            quitter.expect("who waits too long is refused");
        }
        meeting.until_queued(name, waits.len()).await;
        hold.release().await;
        for wait in join_all(waits).await {
            wait.expect("every other waiter is served");
        }
        served.in_order(3);
    });
    join_all(queues).await;
    meeting.nothing_is_left(&names).await;
}

/// The lock is free and has a queue: no request of either language overtakes the queue.
#[tokio::test]
async fn a_request_that_does_not_queue_does_not_overtake_the_queue() {
    let meeting = Meeting::open().await;
    let name = meeting.name();
    let hold = meeting.rust().lock(Kind::Fair, &name, LONG).await;
    let served = Served::default();
    let waiter = meeting.java(Version::V4_7);
    let wait = served.enqueue(&meeting, waiter, &name).await;
    for passer in meeting.one_of_each() {
        let granted = passer.try_lock(Kind::Fair, &name, Duration::ZERO).await;
        assert!(granted.is_none());
    }
    assert_eq!(meeting.queue(&name).await.len(), 1, "a single try queued");
    hold.release().await;
    wait.await.expect("the waiter is served");
    meeting.nothing_is_left([&name]).await;
}

/// The order in which waiters were granted, as indices of their arrival.
#[derive(Debug, Default)]
struct Served {
    order: Arc<Mutex<Vec<usize>>>,
}

impl Served {
    /// Starts the wait of `waiter`, which is in the queue when this returns.
    async fn enqueue(&self, meeting: &Meeting, waiter: Party, name: &str) -> JoinHandle<()> {
        let place = meeting.queue(name).await.len();
        let order = self.order.clone();
        let lock = name.to_owned();
        let wait = tokio::spawn(async move {
            let held = waiter.lock(Kind::Fair, &lock, LEASE).await;
            order.lock().expect("no thread panics here").push(place);
            tokio::time::sleep(Duration::from_millis(5)).await;
            held.release().await;
        });
        meeting.until_queued(name, place + 1).await;
        wait
    }

    fn in_order(&self, count: usize) {
        let order = self.order.lock().expect("no thread panics here");
        assert_eq!(order.len(), count);
        assert!(order.is_sorted(), "served in the order {order:?}");
    }
}

//! Futures that are dropped while the network delays the answer that they wait for.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{MODES, client, nothing_is_left, rival, works_again};
use crate::support::{Proxy, RedisServer};

/// More polls than a request needs until it waits for the delayed answer.
const POLLS: usize = 4;

/// Polls the future `polls` times, or until it is not woken any more, and drops it.
async fn drop_after<T>(polls: usize, mut future: Pin<Box<dyn Future<Output = T> + Send + '_>>) {
    let mut left = polls;
    let polled = poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if left > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    });
    let _ = timeout(Duration::from_millis(50), polled).await;
}

/// L7, L8. No caller receives the answer, and the grant is withdrawn.
#[tokio::test]
async fn an_acquisition_dropped_at_any_poll_while_its_answer_is_held_leaves_nothing() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let (locks, holder) = (client(proxy.url()).await, client(server.url()).await);
    // The server knows the scripts.
    works_again(&server, &[&locks]).await;
    let mut caught = 0;
    for mode in MODES {
        for taken in [false, true] {
            for polls in 0..=POLLS {
                let guard = match taken {
                    true => Some(holder.lock("n").mode(rival(mode)).await.expect("free")),
                    false => None,
                };
                proxy.replies.hold();
                drop_after(polls, Box::pin(locks.lock("n").mode(mode).acquire())).await;
                // The request arrives, and is answered.
                sleep(Duration::from_millis(10)).await;
                caught += proxy.replies.tally().held;
                proxy.replies.release();
                if let Some(guard) = guard {
                    guard.release().await.expect("held all the time");
                }
                nothing_is_left(&server, &[&locks, &holder]).await;
            }
        }
    }
    assert!(caught > 0, "no answer was outstanding");
    works_again(&server, &[&locks, &holder]).await;
}

/// L7, L8. The release continues without its caller.
#[tokio::test]
async fn a_release_dropped_at_any_poll_while_its_answer_is_held_goes_on() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let locks = client(proxy.url()).await;
    works_again(&server, &[&locks]).await;
    let mut caught = 0;
    for mode in MODES {
        for polls in 0..=POLLS {
            let guard = locks.lock("n").mode(mode).await.expect("free");
            proxy.replies.hold();
            drop_after(polls, Box::pin(guard.release())).await;
            sleep(Duration::from_millis(10)).await;
            caught += proxy.replies.tally().held;
            proxy.replies.release();
            nothing_is_left(&server, &[&locks]).await;
        }
    }
    assert!(caught > 0, "no answer was outstanding");
    works_again(&server, &[&locks]).await;
}

use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use super::*;
use crate::store::redis::link::tests::{context, opened, wants_a_password};

/// Subscriptions without a task.
fn subscriptions() -> Arc<Subscriptions> {
    Subscriptions::new(&context())
}

fn listeners(subscriptions: &Subscriptions) -> usize {
    let count = |channel: &ChannelState| channel.signal.receiver_count();
    subscriptions.look_at("k", count).unwrap_or(0)
}

fn push(kind: PushKind, channel: &str) -> PushInfo {
    let data = vec![Value::BulkString(channel.into()), Value::Int(1)];
    PushInfo { kind, data }
}

#[test]
fn a_failure_to_connect_is_no_answer_to_a_subscription_that_is_sent_afterwards() {
    let subscriptions = subscriptions();
    let (_early, _) = subscriptions.register("k".to_owned());
    subscriptions.failed(&unreachable("it is down"));
    // The server is back.
    assert_eq!(subscriptions.changes().len(), 1);
    let (_late, answer) = subscriptions.register("k".to_owned());
    assert!(answer.borrow().is_none(), "the server has not answered");
    subscriptions.take_in(&push(PushKind::Subscribe, "k"));
    assert!(matches!(*answer.borrow(), Some(Ok(()))));
}

/// The listeners stay, and the next connection has other credentials.
#[tokio::test]
async fn a_connection_on_which_the_server_wants_a_password_is_left_with_all_listeners() {
    let subscriptions = subscriptions();
    let (_wakeups, answer) = subscriptions.register("k".to_owned());
    let (wire, far) = opened().await;
    let sending = subscriptions.send_changes(&wire);
    let (sent, ()) = tokio::join!(sending, wants_a_password(far));
    assert!(sent.is_err() && answer.borrow().is_none());
    assert_eq!(listeners(&subscriptions), 1);
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls a task within the call that wakes it.
struct AtOnce(std::sync::Mutex<Option<Task>>);

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        if let Ok(mut task) = self.0.try_lock() {
            task.take_if(|task| task.as_mut().poll(&mut cx).is_ready());
        }
    }
}

/// A deadlock never ends.
#[test]
fn a_listener_may_leave_within_the_call_that_wakes_it() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let subscriptions = subscriptions();
        let listen = || {
            let (mut wakeups, _) = subscriptions.register("k".to_owned());
            let task: Task = Box::pin(async move {
                let _ = wakeups.wait().await;
            });
            Arc::new(AtOnce(std::sync::Mutex::new(Some(task)))).wake();
        };
        listen();
        subscriptions.take_in(&push(PushKind::Message, "k"));
        assert_eq!(listeners(&subscriptions), 0);
        listen();
        subscriptions.end_all_but(|_| false);
        assert_eq!(listeners(&subscriptions), 0);
        listen();
        subscriptions.close();
        done.send(()).expect("the test waits");
    });
    let limit = Duration::from_secs(10);
    ended.recv_timeout(limit).expect("it ends, without a panic");
}

//! The runtime of a task ends: the task goes on where the background work of the client runs.
//!
//! Two runtimes have no paused clock in common, so no time is measured here.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};

use super::*;
use crate::exploration::script::Reply;
use crate::store::Wakeups;

/// A request that was refused. Its task runs on another runtime, and has asked for a subscription.
struct Elsewhere {
    script: Script,
    near: Runtime,
    place: Attempt,
    subscribing: Reply<Wakeups>,
    _waiting: BoxFuture<'static, Result<LockGuard, LockError>>,
}

async fn elsewhere() -> Elsewhere {
    let (mut script, store) = Script::new();
    let locks = LockClient::builder(store).runtime(Handle::current());
    let mut near = Builder::new_multi_thread();
    let near = near.worker_threads(1).enable_time().build();
    let near = near.expect("a runtime");
    let mut waiting = locks.build().lock("k").acquire().boxed();
    let mut poll = || {
        let _near = near.enter();
        assert!((&mut waiting).now_or_never().is_none());
    };
    poll();
    let (place, reply) = script.acquire().await;
    reply.refuse();
    poll();
    let (_, subscribing) = script.subscribe().await;
    Elsewhere {
        script,
        near,
        place,
        subscribing,
        _waiting: waiting,
    }
}

async fn end(runtime: Runtime) {
    let ending = tokio::task::spawn_blocking(|| drop(runtime)).await;
    ending.expect("no panic");
}

#[tokio::test]
async fn a_task_keeps_its_place_and_its_subscription() {
    let mut task = elsewhere().await;
    end(task.near).await;
    let _signal = task.subscribing.listens();
    let (attempt, _) = task.script.acquire().await;
    assert_eq!(attempt.hold.id, task.place.hold.id);
}

/// Its answer may come too late for any request.
#[tokio::test]
async fn a_question_under_way_is_withdrawn_and_the_next_has_another_id() {
    let mut task = elsewhere().await;
    let _signal = task.subscribing.listens();
    let (_, under_way) = task.script.acquire().await;
    end(task.near).await;
    let (attempt, _) = task.script.acquire().await;
    assert_ne!(attempt.hold.id, task.place.hold.id);
    under_way.refuse();
    let (withdrawn, ..) = task.script.withdraw().await;
    assert_eq!(withdrawn.hold.id, task.place.hold.id);
}

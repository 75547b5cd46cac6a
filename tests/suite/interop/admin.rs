//! LockAdmin shows Redisson's holders and waiters, and ends their holds.

use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::{LockAdmin, LockMode};

use super::redisson::{JavaThread, Version};
use super::{Kind, LEASE, Meeting, Party, WATCHDOG};

fn threads(meeting: &Meeting) -> Vec<(Kind, JavaThread, String)> {
    let mut threads = Vec::new();
    for version in Version::ALL {
        for kind in version.kinds() {
            threads.extend(meeting.names().map(|name| {
                let thread = meeting.redisson(version).thread();
                (kind, thread, name)
            }));
        }
    }
    threads
}

#[tokio::test]
async fn a_thread_that_holds_is_shown() {
    let meeting = Meeting::open().await;
    let admin = LockAdmin::new(meeting.store());
    let threads = threads(&meeting);
    let shown = threads.iter().map(async |(kind, thread, name)| {
        thread.lock(*kind, name, None).await.unwrap();
        thread.lock(*kind, name, None).await.unwrap();
        let found = admin.inspect(name).await.expect("it is a lock");
        let [holder] = &found.holders[..] else {
            panic!("{kind}: one thread holds {name}, not {found:?}")
        };
        assert_eq!(holder.id, thread.owner().await.unwrap(), "{kind}");
        assert_eq!(holder.count, 2, "{kind}");
        let mode = match kind {
            Kind::Read | Kind::Write => kind.mode(),
            // The hash does not contain the mode.
            _ => LockMode::Reentrant,
        };
        assert_eq!(holder.mode, mode);
        // A second write adds its lease to the first one's (PROTOCOL 1.3).
        assert!(holder.remaining > Duration::ZERO && holder.remaining <= WATCHDOG * 2);
        for _ in 0..2 {
            thread.unlock(*kind, name).await.unwrap();
        }
        assert!(!admin.inspect(name).await.expect("it is free").is_held());
    });
    join_all(shown).await;
    meeting
        .nothing_is_left(threads.iter().map(|(_, _, name)| name))
        .await;
}

#[tokio::test]
async fn a_fair_queue_is_shown_in_its_order() {
    let meeting = Meeting::open().await;
    let admin = LockAdmin::new(meeting.store());
    let name = meeting.name();
    let hold = meeting.rust().lock(Kind::Fair, &name, LEASE).await;
    let mut owners = Vec::new();
    let mut waits = Vec::new();
    for (queued, version) in Version::ALL.into_iter().enumerate() {
        let thread = meeting.redisson(version).thread();
        owners.push(thread.owner().await.unwrap());
        let (waiter, lock) = (Party::Java(thread), name.clone());
        waits.push(tokio::spawn(async move {
            waiter.lock(Kind::Fair, &lock, LEASE).await.release().await;
        }));
        meeting.until_queued(&name, queued + 1).await;
    }
    let found = admin.inspect(&name).await.expect("it is a lock");
    assert_eq!(found.waiters, owners);
    hold.release().await;
    for wait in waits {
        wait.await.expect("every waiter is served");
    }
    meeting.nothing_is_left([&name]).await;
}

#[tokio::test]
async fn a_hold_of_redisson_can_be_ended() {
    let meeting = Meeting::open().await;
    let admin = LockAdmin::new(meeting.store());
    let threads = threads(&meeting);
    let ended = threads.iter().map(async |(kind, thread, name)| {
        thread.lock(*kind, name, None).await.unwrap();
        assert!(admin.force_unlock(name).await.expect("it is a lock"));
        assert_eq!(thread.hold_count(*kind, name).await.unwrap(), 0, "{kind}");
        let granted = meeting
            .rust()
            .try_lock(kind.rival(), name, Duration::ZERO)
            .await;
        let granted = granted.expect("it is free");
        // Redisson's watchdog does not restore the hold, and its unlock does not release the hold of
        // another owner.
        let exception = thread.unlock(*kind, name).await.result;
        assert!(exception.expect_err("it lost the lock").is_not_owner());
        granted.release().await;
    });
    join_all(ended).await;
    meeting
        .nothing_is_left(threads.iter().map(|(_, _, name)| name))
        .await;
}

//! A writer of Redisson that reads, and continues to read after it releases the write. For one of ours, the read is one more share of
//! the write, and other readers wait for its end.

use std::time::Duration;

use futures_util::future::join_all;

use super::redisson::now;
use super::{Kind, LEASE, Meeting, Party, WATCHDOG};

#[tokio::test]
async fn a_writer_may_read_and_go_on_reading() {
    let meeting = Meeting::open().await;
    let mut cases = Vec::new();
    let pairs = meeting.pairs().into_iter();
    for (writer, other) in pairs.filter(|(writer, _)| matches!(writer, Party::Java(_))) {
        let other = (other.clone(), meeting.another(&other));
        let named = |name| (writer.clone(), other.clone(), name);
        cases.extend(meeting.names().map(named));
    }
    let downgrades = cases.iter().map(|(writer, (reader, rival), name)| {
        downgrade(&meeting, meeting.another(writer), reader, rival, name)
    });
    join_all(downgrades).await;
    meeting
        .nothing_is_left(cases.iter().map(|case| &case.2))
        .await;
}

async fn downgrade(meeting: &Meeting, writer: Party, reader: &Party, rival: &Party, name: &String) {
    let case = format!("{} writes, {} reads", writer.language(), reader.language());
    let write = writer.lock(Kind::Write, name, LEASE).await;
    let read = writer.lock(Kind::Read, name, LEASE).await;
    let refused = rival.try_lock(Kind::Read, name, Duration::ZERO).await;
    assert!(
        refused.is_none(),
        "{case}: a stranger reads beside the writer"
    );

    let (waiter, lock) = (meeting.another(reader), name.clone());
    let wait = tokio::spawn(async move { waiter.lock(Kind::Read, &lock, LEASE).await });
    meeting.until_waiting([(name, 1)]).await;
    write.release().await;
    let released = now();
    // Redisson publishes no message at a downgrade; its writer's lease bounds the wait of the
    // others.
    let admitted = wait.await.expect("a reader gets in");
    let took = admitted.since.saturating_sub(released);
    assert!(took < WATCHDOG + WATCHDOG, "{case}: came in after {took:?}");

    let refused = rival.try_lock(Kind::Write, name, Duration::ZERO).await;
    assert!(
        refused.is_none(),
        "{case}: a stranger writes beside readers"
    );
    admitted.release().await;
    let refused = rival.try_lock(Kind::Write, name, Duration::ZERO).await;
    assert!(refused.is_none(), "{case}: the read is gone");
    read.release().await;
    let granted = rival.try_lock(Kind::Write, name, Duration::ZERO).await;
    granted.expect("all are gone").release().await;
}

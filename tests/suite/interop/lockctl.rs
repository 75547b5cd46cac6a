//! `lockctl` shows the locks of Redisson, breaks them, and waits for them.

use futures_util::future::join_all;
use serde_json::Value;

use super::redisson::Version;
use super::{Kind, Meeting};
use crate::lockctl::{done, lockctl};

#[tokio::test]
async fn a_java_holder_is_shown_waited_for_and_broken() {
    let meeting = Meeting::open().await;
    let url = meeting.redis().url();
    let mut cases = Vec::new();
    for version in Version::ALL {
        cases.extend(version.kinds().into_iter().map(|kind| (version, kind)));
    }
    let cases = cases.into_iter().map(async |(version, kind)| {
        let (thread, name) = (meeting.redisson(version).thread(), meeting.name());
        thread.lock(kind, &name, None).await.unwrap();
        let owner = thread.owner().await.unwrap();

        let shown = done(lockctl(&url, &["show", &name, "--json"])).await;
        assert_eq!(shown.code, 0, "{kind}: {shown:?}");
        let found: Value = serde_json::from_str(&shown.out).expect("JSON");
        assert_eq!(found["holders"][0]["id"], *owner, "{kind}: {found}");
        let table = done(lockctl(&url, &["show", &name])).await;
        assert!(table.out.contains(&owner), "{kind}: {table:?}");
        assert!(table.out.contains("Redisson"), "{kind}: {table:?}");
        let listed = done(lockctl(&url, &["ls", "--match", &name])).await;
        assert!(listed.out.contains(&owner), "{kind}: {listed:?}");

        let mode = match kind {
            Kind::Read | Kind::Write => "write",
            _ => "reentrant",
        };
        let run = [
            "run", "--key", &name, "--mode", mode, "--wait", "0", "--", "true",
        ];
        assert_eq!(done(lockctl(&url, &run)).await.code, 80, "{kind}");
        let broken = done(lockctl(&url, &["break", &name, "--yes"])).await;
        assert_eq!(broken.code, 0, "{kind}: {broken:?}");
        assert_eq!(thread.hold_count(kind, &name).await.unwrap(), 0, "{kind}");
        assert_eq!(done(lockctl(&url, &run)).await.code, 0, "{kind}");
    });
    join_all(cases).await;
}

//! Readers of both languages in one lock: each keeps it alive for its own lease only.

use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::Lease;

use super::{Kind, LEASE, Meeting, Party, WATCHDOG};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_lock_lives_as_long_as_its_longest_living_reader() {
    let meeting = Meeting::open().await;
    let mut cases = Vec::new();
    for (long, short) in meeting.pairs() {
        for long_first in [true, false] {
            let parties = (meeting.another(&long), meeting.another(&short));
            cases.extend(
                meeting
                    .names()
                    .map(|name| (parties.clone(), long_first, name)),
            );
        }
    }
    let lives = cases
        .iter()
        .map(|((long, short), long_first, name)| live(&meeting, long, short, *long_first, name));
    join_all(lives).await;
    meeting
        .nothing_is_left(cases.iter().map(|case| &case.2))
        .await;
}

async fn live(meeting: &Meeting, long: &Party, short: &Party, long_first: bool, name: &str) {
    let case = format!(
        "{} reads long, {} reads short, {}",
        long.language(),
        short.language(),
        if long_first {
            "long first"
        } else {
            "short first"
        }
    );
    let (long_read, short_read) = if long_first {
        let first = long.lock(Kind::Read, name, Lease::Fixed(LONG)).await;
        (
            first,
            short.lock(Kind::Read, name, Lease::Fixed(SHORT)).await,
        )
    } else {
        let first = short.lock(Kind::Read, name, Lease::Fixed(SHORT)).await;
        (long.lock(Kind::Read, name, Lease::Fixed(LONG)).await, first)
    };
    let ttl = meeting.ttl(name).await.expect("two readers hold it");
    assert!(
        SHORT < ttl && ttl <= LONG,
        "{case}: both read, {ttl:?} left"
    );

    long_read.release().await;
    let ttl = meeting.ttl(name).await;
    let ttl = ttl.unwrap_or_else(|| panic!("{case}: the lock is gone under the short reader"));
    assert!(ttl <= SHORT, "{case}: the short one reads, {ttl:?} left");
    let writer = meeting.another(long);
    let granted = writer.try_lock(Kind::Write, name, Duration::ZERO).await;
    assert!(
        granted.is_none(),
        "{case}: a writer came in beside a reader"
    );
    short_read.release().await;
}

/// Each renews its own timeout key only, and the hash for all.
#[tokio::test]
async fn renewed_readers_outlive_each_other() {
    const LATER: Duration = Duration::from_millis(1500);
    let meeting = Meeting::open().await;
    let mut cases = Vec::new();
    for (stays, goes) in meeting.pairs() {
        for goes_at_once in [true, false] {
            let parties = (meeting.another(&stays), meeting.another(&goes));
            cases.extend(
                meeting
                    .names()
                    .map(|name| (parties.clone(), goes_at_once, name)),
            );
        }
    }
    let renewed = cases
        .iter()
        .map(async |((stays, goes), goes_at_once, name)| {
            let stay = stays.lock(Kind::Read, name, LEASE).await;
            let go = goes.lock(Kind::Read, name, LEASE).await;
            let (alone, together) = match goes_at_once {
                true => (WATCHDOG + LATER, Duration::ZERO),
                false => (Duration::ZERO, WATCHDOG + LATER),
            };
            tokio::time::sleep(together).await;
            go.release().await;
            tokio::time::sleep(alone).await;
            for writer in [meeting.another(stays), meeting.another(goes)] {
                let granted = writer.try_lock(Kind::Write, name, Duration::ZERO).await;
                let (stays, writer) = (stays.language(), writer.language());
                assert!(granted.is_none(), "{stays} reads, and {writer} writes");
            }
            stay.release().await;
        });
    join_all(renewed).await;
    meeting
        .nothing_is_left(cases.iter().map(|case| &case.2))
        .await;
}

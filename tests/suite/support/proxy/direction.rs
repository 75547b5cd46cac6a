//! One direction of traffic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The treatment of all bytes in one direction. Traffic flows until the test changes it.
///
/// A change takes effect before the call returns: after [`hold`](Self::hold), not one byte passes.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    pub(super) flow: watch::Sender<Flow>,
    tally: watch::Sender<Tally>,
}

/// The settings of the test.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) held: bool,
    /// The number of the hold, so that a connection is counted once in each.
    hold: u64,
    pub(super) half_closed: u64,
    delay: Duration,
}

/// The counts of a direction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes forwarded since the start.
    pub(crate) passed: u64,
    /// Bytes caught by the latest hold.
    pub(crate) held: u64,
    /// Connections whose bytes the latest hold caught.
    pub(crate) held_connections: u64,
}

impl Direction {
    /// Holds everything back: bytes under way, later ones, and the end of a connection.
    pub(crate) fn hold(&self) {
        self.flow.send_modify(|flow| {
            flow.held = true;
            flow.hold += 1;
            self.tally.send_modify(|tally| {
                tally.held = 0;
                tally.held_connections = 0;
            });
        });
    }

    /// Delivers what was held back, in order.
    pub(crate) fn release(&self) {
        self.flow.send_modify(|flow| flow.held = false);
    }

    /// Delivers each byte this much later than it arrived; bytes under way keep their time.
    pub(crate) fn delay(&self, delay: Duration) {
        self.flow.send_modify(|flow| flow.delay = delay);
    }

    /// Ends this direction (FIN) of every open connection, and drops later bytes. The other direction continues.
    pub(crate) fn half_close(&self) {
        self.flow.send_modify(|flow| flow.half_closed += 1);
    }

    /// The bytes that have passed, and those that the latest hold has caught.
    pub(crate) fn tally(&self) -> Tally {
        *self.tally.borrow()
    }

    /// Waits until the current hold has caught bytes: the fault affects work under way.
    pub(crate) async fn until_caught(&self) -> Tally {
        const LIMIT: Duration = Duration::from_secs(30);
        assert!(
            self.flow.borrow().held,
            "a direction that is not held catches nothing"
        );
        let mut tally = self.tally.subscribe();
        let caught = timeout(LIMIT, tally.wait_for(|tally| tally.held > 0)).await;
        *caught
            .expect("nothing was caught")
            .expect("the direction has the sender")
    }

    pub(super) fn arrival(&self) -> Instant {
        Instant::now() + self.flow.borrow().delay
    }

    pub(super) fn passed(&self, bytes: usize) {
        self.tally.send_modify(|tally| tally.passed += bytes as u64);
    }

    /// Counts bytes if the direction is held. Returns whether it is held. `counted_in` is the last hold that has caught their
    /// connection.
    pub(super) fn catch(&self, bytes: usize, counted_in: &AtomicU64) -> bool {
        let flow = self.flow.borrow();
        if flow.held {
            self.tally.send_modify(|tally| {
                tally.held += bytes as u64;
                let before = counted_in.swap(flow.hold, Ordering::Relaxed);
                tally.held_connections += u64::from(before != flow.hold);
            });
        }
        flow.held
    }
}

//! One key of a survey.

use std::time::Duration;

use serde_json::{Value, json};
use tower_distributed_lock::Lease;
use tower_distributed_lock::client::{HoldSnapshot, KeySnapshot};

use crate::holders::{HolderElsewhere, who};
use crate::millis;

/// A key.
pub(crate) struct Row {
    pub(crate) key: KeySnapshot,
}

impl Row {
    pub(crate) fn new(key: KeySnapshot) -> Self {
        Self { key }
    }

    /// The oldest hold of this process.
    pub(crate) fn hold(&self) -> Option<&HoldSnapshot> {
        self.key.holds.first()
    }

    /// Whether this process holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.hold().is_some()
    }

    pub(crate) fn waiters(&self) -> usize {
        self.key.waiters.len()
    }

    /// For how long the first request has waited.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        self.key.waiters.first().map(|first| first.waited)
    }

    /// For how long the holder of this process has had it; otherwise for how long the first request has waited.
    pub(crate) fn age(&self) -> Option<Duration> {
        let held = self.hold().map(|hold| hold.held);
        held.or_else(|| self.longest_wait())
    }

    pub(crate) fn mode(&self) -> &'static str {
        let held = self.hold().map(|hold| hold.mode);
        let waiting = self.key.waiters.first().map(|first| first.mode);
        held.or(waiting).map_or("", |mode| mode.as_str())
    }

    /// The route of the holder here, or of the first request that waits.
    pub(crate) fn route(&self) -> &str {
        let held = self.hold().map(|hold| &hold.route);
        let route = held.or(self.key.waiters.first().map(|first| &first.route));
        route.and_then(Option::as_deref).unwrap_or("none")
    }

    /// The row of `api/keys`, with the holder in the store, if that is another process and known. What only a hold has is `null` if
    /// this process has none.
    pub(crate) fn json(&self, elsewhere: Option<&HolderElsewhere>) -> Value {
        let hold = self.hold();
        let holder = match hold {
            Some(hold) => who("here", Some(&hold.id.to_string()), None, None),
            None => elsewhere.map_or_else(|| who("unknown", None, None, None), |it| it.who.clone()),
        };
        let left = elsewhere.and_then(HolderElsewhere::left);
        let hold = hold.map_or_else(
            || json!({ "state": "waiting", "lease_left_ms": left }),
            held_here,
        );
        json!({
            "key": self.key.key,
            "state": hold["state"],
            "mode": self.mode(),
            "holder": holder,
            "route": self.route(),
            "age_ms": self.age().map(millis::to_ms),
            "lease_ms": hold["lease_ms"],
            "lease_left_ms": hold["lease_left_ms"],
            "renewed": hold["renewed"],
            "shares": hold["shares"],
            "holds": self.key.holds.len(),
            "waiters": self.waiters(),
            "longest_wait_ms": self.longest_wait().map(millis::to_ms),
            "token": hold["token"],
        })
    }
}

/// A hold of this process.
pub(crate) fn held_here(hold: &HoldSnapshot) -> Value {
    json!({
        "id": hold.id.to_string(),
        "state": if hold.is_lost { "lost" } else { "held" },
        "mode": hold.mode.as_str(),
        "route": hold.route.unwrap_or("none"),
        "age_ms": millis::to_ms(hold.held),
        "lease_ms": millis::to_ms(hold.lease.duration()),
        "lease_left_ms": millis::to_ms(hold.remaining),
        "renewed": matches!(hold.lease, Lease::Renewed(_)),
        "shares": hold.guards,
        // A string: JavaScript has no numbers of 64 bits.
        "token": hold.token.map(|token| token.to_string()),
    })
}

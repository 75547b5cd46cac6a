//! One key of a survey.

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::holders::{HolderElsewhere, who};
use super::millis;
use crate::lock::Lease;
use crate::table::{HoldView, KeyView};
use crate::telemetry::Route;
use crate::telemetry::journal::StoreWaiter;

/// A key, and the requests of this process that the store has refused.
pub(super) struct Row {
    pub(super) view: KeyView,
    /// The number of waiting requests, in the process and for the store.
    pub(super) waiters: usize,
    pub(super) first_waiter: Option<Instant>,
    /// The route of the holder here, or of the first request that waits for the store.
    pub(super) route: Route,
    /// The holder in the store, once it is known. Only keys that this process does not hold are asked about.
    pub(super) elsewhere: OnceCell<Option<HolderElsewhere>>,
}

impl Row {
    pub(super) fn new(view: KeyView, refused: &[StoreWaiter]) -> Self {
        let first = refused.iter().min_by_key(|waiter| waiter.since);
        let held = view.hold.as_ref().map(|hold| &hold.route);
        let route = held.or(first.map(|waiter| &waiter.route));
        let first_waiter = view.first_waiter.into_iter();
        Self {
            waiters: view.waiters + refused.len(),
            first_waiter: first_waiter.chain(first.map(|waiter| waiter.since)).min(),
            route: route.cloned().unwrap_or_default(),
            elsewhere: OnceCell::new(),
            view,
        }
    }

    /// Whether this process holds it.
    pub(super) fn is_held(&self) -> bool {
        self.view.hold.is_some()
    }

    /// When the holder of this process got it; otherwise when the first request began to wait.
    pub(super) fn began(&self) -> Option<Instant> {
        let held = self.view.hold.as_ref().map(|hold| hold.since);
        held.or(self.first_waiter)
    }

    pub(super) fn mode(&self) -> &'static str {
        let held = self.view.hold.as_ref().map(|hold| hold.mode.as_str());
        held.or(self.view.wanted).unwrap_or_default()
    }

    /// The row of `api/keys`. What only a hold has is `null` where this process has none.
    pub(super) fn json(&self, now: Instant) -> Value {
        let hold = self.view.hold.as_ref();
        let elsewhere = self.elsewhere.get().and_then(Option::as_ref);
        let holder = match hold {
            Some(hold) => who("here", Some(&hold.id.to_string()), None, None),
            None => elsewhere.map_or_else(|| who("unknown", None, None, None), |it| it.who.clone()),
        };
        let left = elsewhere.and_then(|elsewhere| elsewhere.left);
        let hold = hold.map_or_else(
            || json!({ "state": "waiting", "lease_left_ms": left }),
            |hold| held_here(hold, now),
        );
        json!({
            "key": self.view.key,
            "state": hold["state"],
            "mode": self.mode(),
            "holder": holder,
            "route": self.route.as_str(),
            "age_ms": self.began().map(|began| millis::since(began, now)),
            "lease_ms": hold["lease_ms"],
            "lease_left_ms": hold["lease_left_ms"],
            "renewed": hold["renewed"],
            "renewals": hold["renewals"],
            "handovers": hold["handovers"],
            "shares": hold["shares"],
            "holds": self.view.holds,
            "waiters": self.waiters,
            "longest_wait_ms": self.first_waiter.map(|first| millis::since(first, now)),
            "token": hold["token"],
        })
    }
}

/// A hold of this process.
pub(super) fn held_here(hold: &HoldView, now: Instant) -> Value {
    json!({
        "id": hold.id.to_string(),
        "state": hold.state,
        "mode": hold.mode.as_str(),
        "route": hold.route.as_str(),
        "age_ms": millis::since(hold.since, now),
        // The process may have handed it over since the store granted it.
        "granted_ms": millis::since(hold.granted, now),
        "lease_ms": millis::of(hold.lease.duration()),
        "lease_left_ms": millis::since(now, hold.deadline),
        "renewed": matches!(hold.lease, Lease::Renewed(_)),
        "renewals": hold.renewals,
        "handovers": hold.handovers,
        "shares": hold.shares,
        // A string: JavaScript has no numbers of 64 bits.
        "token": hold.token.map(|token| token.to_string()),
    })
}

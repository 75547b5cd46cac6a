//! An independent record of the store's questions and answers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::Inspection;
use tower_distributed_lock::{LockKey, LockMode};
use uuid::Uuid;

use super::life::{Life, Span, Stamp};
use super::log::short;

/// Every hold that was ever granted, with its promised deadline, and every record.
#[derive(Default)]
pub(super) struct Book {
    keys: BTreeMap<LockKey, Vec<Life>>,
    records: BTreeMap<LockKey, Vec<Bytes>>,
    withdrawn: HashSet<HoldId>,
    tokens: HashMap<LockKey, u64>,
}

impl Book {
    /// Records a grant: the hold lives for `lease` from now.
    pub(super) fn grant(&mut self, hold: &Hold, lease: Duration, tick: u64) {
        let now = Instant::now();
        if self.renew(hold, lease) {
            return;
        }
        self.lives(&hold.key).push(Life {
            hold: hold.clone(),
            granted: (now, tick),
            until: now + lease,
            ended: None,
        });
    }

    /// The same for a live hold; `false` if it does not live.
    pub(super) fn renew(&mut self, hold: &Hold, lease: Duration) -> bool {
        let now = Instant::now();
        let mut lives = self.lives(&hold.key).iter_mut();
        let Some(life) = lives.find(|life| life.hold == *hold && life.is_live(now)) else {
            return false;
        };
        life.until = life.until.max(now + lease);
        true
    }

    /// Whether the hold lives.
    pub(super) fn carries(&mut self, hold: &Hold) -> bool {
        let now = Instant::now();
        let mut lives = self.lives(&hold.key).iter();
        lives.any(|life| life.hold == *hold && life.is_live(now))
    }

    /// Whether the hold was ever granted.
    pub(super) fn has_granted(&mut self, hold: &Hold) -> bool {
        let mut lives = self.lives(&hold.key).iter();
        lives.any(|life| life.hold == *hold)
    }

    /// Ends the hold now.
    pub(super) fn end(&mut self, hold: &Hold, tick: u64) {
        let now = Instant::now();
        let lives = self.lives(&hold.key).iter_mut();
        lives
            .filter(|life| life.hold == *hold && life.is_live(now))
            .for_each(|life| life.ended = Some((now, tick)));
    }

    /// The time since when the key, or one of its permits, is free and not granted; `None` if none is free. A key that was never
    /// held has always been free.
    pub(super) fn free_since(&mut self, key: &LockKey, ever: Instant) -> Option<Instant> {
        let now = Instant::now();
        let lives = self.lives(key);
        let live: Vec<&Life> = lives.iter().filter(|life| life.is_live(now)).collect();
        if is_full(&live) {
            return None;
        }
        let mut ends: Vec<Stamp> = lives.iter().map(|life| life.span().to).collect();
        ends.retain(|(at, _)| *at <= now);
        ends.sort_unstable();
        let full_until = ends.into_iter().rev().find(|end| {
            let lived = |life: &&Life| {
                let span = life.span();
                span.from < *end && *end <= span.to
            };
            is_full(&lives.iter().filter(lived).collect::<Vec<_>>())
        });
        let granted = lives.iter().map(|life| life.span().from);
        let last = full_until.into_iter().chain(granted).max();
        Some(last.map_or(ever, |(at, _)| at))
    }

    pub(super) fn withdraw(&mut self, hold: &Hold) {
        self.withdrawn.insert(hold.id);
    }

    pub(super) fn was_withdrawn(&self, hold: &Hold) -> bool {
        self.withdrawn.contains(&hold.id)
    }

    /// Records a token and those reserved after it; `false` if it is not larger than all earlier tokens.
    pub(super) fn issue(&mut self, key: &LockKey, token: u64, reserve: u32) -> bool {
        let largest = self.tokens.entry(key.clone()).or_default();
        let rises = token > *largest;
        *largest = token + u64::from(reserve);
        rises
    }

    /// Whether a grant to `client` covers the deadline of its guard.
    pub(super) fn promised(&self, at: Guarded<'_>, deadline: Instant) -> bool {
        self.of(at).any(|life| life.until >= deadline)
    }

    /// The times during which the store carried holds of `client`.
    pub(super) fn spans(&self, at: Guarded<'_>) -> impl Iterator<Item = Span> {
        self.of(at).map(Life::span)
    }

    /// Stores a record.
    pub(super) fn record(&mut self, key: &LockKey, value: &Bytes) {
        let records = self.records.entry(key.clone()).or_default();
        records.push(value.clone());
    }

    /// All records under the key, the last one at the end.
    pub(super) fn records_of(&self, key: &LockKey) -> &[Bytes] {
        self.records.get(key).map_or(&[], Vec::as_slice)
    }

    /// All records.
    pub(super) fn records(&self) -> impl Iterator<Item = &Bytes> {
        self.records.values().flatten()
    }

    fn of(&self, at: Guarded<'_>) -> impl Iterator<Item = &Life> {
        let lives = self.keys.get(at.key).into_iter().flatten();
        lives
            .filter(move |life| life.hold.id.client() == at.client && same(life.hold.mode, at.mode))
    }

    /// Every key that was ever held.
    pub(super) fn keys(&self) -> Vec<LockKey> {
        self.keys.keys().cloned().collect()
    }

    /// The differences between the store and this book.
    pub(super) fn differences(
        &mut self,
        key: &LockKey,
        seen: &Inspection,
    ) -> Vec<(&'static str, String)> {
        let now = Instant::now();
        let lives: Vec<&Life> = self
            .lives(key)
            .iter()
            .filter(|life| life.is_live(now))
            .collect();
        let mut found = Vec::new();
        for life in &lives {
            let (id, mode) = (life.hold.id.to_string(), life.hold.mode);
            let mut holders = seen.holders.iter();
            match holders.find(|holder| holder.id == id && same(holder.mode, mode)) {
                None => found.push((
                    "S2",
                    format!("{} was removed from {key} by others", short(&id)),
                )),
                Some(holder) if now + holder.remaining < life.until => {
                    found.push((
                        "S4",
                        format!("{} on {key} ends before it was promised to", short(&id)),
                    ));
                }
                Some(_) => {}
            }
        }
        for holder in &seen.holders {
            let known = lives.iter().any(|life| {
                life.hold.id.to_string() == holder.id && same(life.hold.mode, holder.mode)
            });
            if !known {
                let id = short(&holder.id);
                found.push(("S3", format!("{id} holds {key}, and was not granted")));
            }
        }
        if let Some(Life { hold, .. }) = lives.first()
            && let LockMode::Permit(limit) = hold.mode
            && lives.len() > limit.get() as usize
        {
            found.push((
                "S1",
                format!("{} hold one of {limit} permits of {key}", lives.len()),
            ));
        }
        for (n, one) in lives.iter().enumerate() {
            for other in &lives[..n] {
                let (a, b) = (&one.hold, &other.hold);
                if a.mode.is_exclusive() || b.mode.is_exclusive() {
                    found.push((
                        "S1",
                        format!("{} and {} both hold {key}", short(a.id), short(b.id)),
                    ));
                }
            }
        }
        found
    }

    fn lives(&mut self, key: &LockKey) -> &mut Vec<Life> {
        // Cloned only for a new key.
        if !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), Vec::new());
        }
        self.keys.get_mut(key).expect("just looked")
    }
}

/// The client, key and mode of a guard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guarded<'a> {
    pub(super) key: &'a LockKey,
    pub(super) mode: LockMode,
    pub(super) client: Uuid,
}

/// Whether no further hold could be granted beside these, which lived at the same time.
fn is_full(lives: &[&Life]) -> bool {
    lives.first().is_some_and(|life| match life.hold.mode {
        LockMode::Permit(limit) => lives.len() >= limit.get() as usize,
        _ => true,
    })
}

/// Once granted, `Fair` and `Reentrant` are alike, and so are permits.
fn same(one: LockMode, other: LockMode) -> bool {
    let normal = |mode| match mode {
        LockMode::Fair => LockMode::Reentrant,
        LockMode::Permit(_) => LockMode::permits(1),
        mode => mode,
    };
    normal(one) == normal(other)
}

//! The observable state of a store after each step, and the permitted differences.
//!
//! | where | the memory store | Redis | why |
//! |---|---|---|---|
//! | times | exact | within a breath | time goes on while a script runs |
//! | tokens | one counter | a counter for each key, kept as long as was asked | only that each is larger than the last of its key is promised |
//! | waiting readers and writers | in the order of their first question | in that of their last | only a fair queue has an order |
//! | a fair waiter on a free lock | is woken when its turn comes | also by the one that finds that those before it have lapsed | a wake-up may come in vain |
//! | the first in line | is woken when its turn comes | also by the script that finds that those before it have lapsed, and by Redisson's channel while readers or Redisson hold the lock | a wake-up may come in vain |
//! | how many a release has woken | counted | Redis counts, also the first in line while that listens on Redisson's channel; PostgreSQL cannot tell | an estimate, 0 where the store cannot tell |
//! | a name whose permits have all been released | is free for locks at once | is kept for permits for a day | Redisson's listeners read the number of free permits there |
//! | the first in line for a permit | is woken when a permit comes free | also by the script that finds an expired permit, or that those before it have lapsed | a wake-up may come in vain |
//! | what is left of a fair queue whose waiters died | nothing | Redisson's list and sorted set, until the next question | Redisson gives them no expiry |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{
    Grant, HoldStatus, Inspection, Outcome, Released, SeveralOutcome, Want,
};

use super::step::{KEYS, Step, Who, queues};

/// How much later a real server may be. It is less than the distance of any expiry from a tick.
pub(super) const BREATH: Duration = Duration::from_millis(500);

/// A duration that equals durations close to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct About(pub(super) Duration);

impl PartialEq for About {
    fn eq(&self, other: &Self) -> bool {
        self.0.abs_diff(other.0) < BREATH
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Granted { fenced: bool },
    Refused { retry_after: About },
    AllGranted { fenced: Vec<bool> },
    AllRefused { index: usize, retry_after: About },
    AnyGranted { index: usize, fenced: bool },
    AnyRefused { retry_after: About },
    Standings(Vec<HoldStatus>),
    Released(Released),
    Recorded(Released),
    Record(Option<Bytes>),
    Forced(bool),
    Nothing,
    Failed(StoreErrorKind),
}

/// The holders of a lock, by id and mode, with their remaining times; its waiters in the order of the queue, and those without an
/// order; the limit of its permits.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Lock {
    pub(super) holders: BTreeMap<(String, &'static str), (u64, About)>,
    pub(super) queue: Vec<String>,
    pub(super) others: BTreeSet<String>,
    pub(super) limit: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) reply: Reply,
    pub(super) woken: BTreeSet<Who>,
    pub(super) locks: [Lock; KEYS.len()],
}

impl Lock {
    pub(super) fn new(inspection: Inspection) -> Self {
        let waiters = inspection.waiters.into_iter();
        let (queue, others): (Vec<_>, Vec<_>) = waiters.partition(|id| queues(id));
        let holders = inspection.holders.into_iter().map(|holder| {
            let name = (holder.id, holder.mode.as_str());
            (name, (holder.count, About(holder.remaining)))
        });
        Self {
            holders: holders.collect(),
            queue,
            others: others.into_iter().collect(),
            limit: inspection.limit,
        }
    }
}

impl Seen {
    /// The difference between the states of the two stores.
    pub(super) fn difference<'a>(
        step: &'a Step,
        before: impl Iterator<Item = &'a Step>,
        memory: &Self,
        redis: &Self,
    ) -> Option<String> {
        if !memory.replies_like(redis, step) {
            return Some(told("the replies differ", &memory.reply, &redis.reply));
        }
        for (key, name) in KEYS.iter().enumerate() {
            if memory.locks[key] != redis.locks[key] {
                let what = format!("`{name}` differs");
                return Some(told(&what, &memory.locks[key], &redis.locks[key]));
            }
        }
        // The first in line is also woken when its process hears Redisson's channel. The server says so some steps later.
        let recent: Vec<_> = before.chain([step]).collect();
        let hears = |who: &Who| {
            matches!(who.mode(), LockMode::Reentrant | LockMode::Write)
                && recent.iter().any(|step| !lock_untouched(step, *who))
        };
        let excused = |who: &Who| {
            memory.woken.contains(who)
                || hears(who)
                || memory.may_be_nudged(step, *who)
                || memory.may_be_called(step, *who, &redis.woken)
        };
        let too_few = !memory.woken.is_subset(&redis.woken);
        if too_few || !redis.woken.iter().all(excused) {
            return Some(told("others are woken", &memory.woken, &redis.woken));
        }
        None
    }

    /// Whether the replies are the same, but for one more in Redis that a release has woken: the first in line.
    fn replies_like(&self, redis: &Self, step: &Step) -> bool {
        let (Step::Release(who) | Step::ReleaseRecording(who, _)) = step else {
            return self.reply == redis.reply;
        };
        let ((Reply::Released(here), Reply::Released(there))
        | (Reply::Recorded(here), Reply::Recorded(there))) = (&self.reply, &redis.reply)
        else {
            return self.reply == redis.reply;
        };
        let counted = there.notified.checked_sub(here.notified);
        let waits = !self.locks[who.key].others.is_empty();
        (here.status, here.in_line) == (there.status, there.in_line)
            && (counted == Some(0) || counted == Some(1) && waits)
    }

    /// Whether the actor of the step may have found expired waiters before `who` in a fair queue.
    fn may_be_nudged(&self, step: &Step, who: Who) -> bool {
        let fair = |other: &Who| other.key == who.key && other.mode() == LockMode::Fair;
        let lock = &self.locks[who.key];
        let finds = match step {
            Step::Release(other) | Step::ReleaseRecording(other, _) => fair(other),
            step => step.asks().iter().any(|ask| fair(&ask.who)),
        };
        let is_next = match lock.queue.first() {
            Some(first) => who.mode() == LockMode::Fair && who.hold().id.to_string() == *first,
            None => who.mode() == LockMode::Reentrant,
        };
        finds && is_next && lock.holders.is_empty()
    }

    /// Whether the actor of the step may have found an expired permit, or expired waiters before `who` in the line. It
    /// wakes one waiter then.
    fn may_be_called(&self, step: &Step, who: Who, woken: &BTreeSet<Who>) -> bool {
        let here = |woken: &BTreeSet<Who>| {
            let mut woken = woken.iter().filter(|other| other.key == who.key);
            (woken.next().is_some(), woken.next().is_some())
        };
        let waits = self.locks[who.key]
            .others
            .contains(&who.hold().id.to_string());
        matches!(who.mode(), LockMode::Permit(_))
            && waits
            && !lock_untouched(step, who)
            && here(&self.woken) == (false, false)
            && here(woken) == (true, false)
    }

    /// Counts the events.
    pub(super) fn count(&self, covered: &mut BTreeMap<&'static str, usize>) {
        let happened = match &self.reply {
            Reply::Granted { .. } => "granted",
            Reply::Refused { .. } => "refused",
            Reply::AllGranted { .. } => "all granted",
            Reply::AllRefused { .. } => "all refused",
            Reply::AnyGranted { .. } => "any granted",
            Reply::AnyRefused { .. } => "any refused",
            Reply::Released(released) if released.notified > 0 || released.in_line => "heard",
            Reply::Released(released) | Reply::Recorded(released)
                if released.status == HoldStatus::Gone =>
            {
                "gone"
            }
            Reply::Released(_) => "released",
            Reply::Recorded(_) => "recorded",
            Reply::Standings(standings) if standings.contains(&HoldStatus::Held) => {
                "renewed or there"
            }
            Reply::Standings(_) => "gone",
            Reply::Forced(true) => "forced",
            Reply::Failed(StoreErrorKind::Conflict) => "another family",
            Reply::Failed(StoreErrorKind::Refused) => "withdrawn before",
            _ => "nothing",
        };
        *covered.entry(happened).or_default() += 1;
        *covered.entry("woken").or_default() += self.woken.len();
        for permits in self.locks.iter().filter(|lock| lock.limit.is_some()) {
            let side_by_side = permits.holders.len() > 1;
            let waits = !permits.others.is_empty() && !permits.holders.is_empty();
            *covered.entry("permits side by side").or_default() += usize::from(side_by_side);
            *covered.entry("waits for a permit").or_default() += usize::from(waits);
        }
    }
}

/// Whether the step concerns other keys than that of `who`.
fn lock_untouched(step: &Step, who: Who) -> bool {
    let about = |other: &Who| other.key == who.key;
    match step {
        Step::Release(other) | Step::ReleaseRecording(other, _) | Step::Withdraw(other, _) => {
            !about(other)
        }
        Step::ForceUnlock(key) | Step::SetPermits(key, _) => *key != who.key,
        step => !step.asks().iter().any(|ask| about(&ask.who)),
    }
}

fn told(what: &str, memory: &impl std::fmt::Debug, redis: &impl std::fmt::Debug) -> String {
    format!("{what}\n  in memory {memory:?}\n  elsewhere {redis:?}")
}

impl<T> From<Result<T, StoreError>> for Reply
where
    Self: From<T>,
{
    fn from(result: Result<T, StoreError>) -> Self {
        result.map_or_else(|error| Self::Failed(error.kind()), Self::from)
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted { token } => Self::Granted {
                fenced: token.is_some(),
            },
            Outcome::Refused { retry_after } => Self::Refused {
                retry_after: About(retry_after),
            },
        }
    }
}

impl Reply {
    /// The answer to several attempts, all or any.
    pub(super) fn several(outcome: Result<SeveralOutcome, StoreError>, want: Want) -> Self {
        let fenced = |grant: &Grant| grant.token.is_some();
        match (outcome, want) {
            (Ok(SeveralOutcome::Granted(grants)), Want::All) => {
                let places = grants.iter().map(|grant| grant.index);
                assert!(places.eq(0..grants.len()), "in order: {grants:?}");
                Self::AllGranted {
                    fenced: grants.iter().map(fenced).collect(),
                }
            }
            (Ok(SeveralOutcome::Granted(grants)), Want::Any) => {
                assert_eq!(grants.len(), 1, "{grants:?}");
                Self::AnyGranted {
                    index: grants[0].index,
                    fenced: fenced(&grants[0]),
                }
            }
            (Ok(SeveralOutcome::Refused { index, retry_after }), Want::All) => Self::AllRefused {
                index: index.expect("both stores say who stood back"),
                retry_after: About(retry_after),
            },
            (Ok(SeveralOutcome::Refused { retry_after, .. }), Want::Any) => Self::AnyRefused {
                retry_after: About(retry_after),
            },
            (Err(error), _) => Self::Failed(error.kind()),
        }
    }
}

//! How a caller releases or drops its guards.

use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::LockMode;

use super::book::Guarded;
use super::caller::{Caller, Held};
use super::impatient::Patience;
use super::plan::{Ending, Plan};
use super::section::Section;

/// How long a release may take beyond the lease: the time of two owner checks.
const CHECKS: Duration = Duration::from_secs(5);

impl Caller {
    /// Releases or drops the guard, and checks the result.
    pub(super) async fn end(&mut self, plan: &Plan, held: Held) {
        self.believes(&held.guard);
        if let Some(max_hold) = held.max_hold
            && held.since.elapsed() > max_hold
            && !held.guard.is_lost()
        {
            let text = format!("{} holds for longer than {max_hold:?}", self.name);
            self.log.violated("L9", text);
        }
        let (patience, releases) = match plan.ending {
            Ending::Release => (Patience::Endless, true),
            Ending::HalfRelease(patience) => (patience, true),
            Ending::Drop => (Patience::Endless, false),
        };
        let to = self.log.tick();
        self.log
            .note(|| format!("{} ends {:?} ({:?})", self.name, held.guard, plan.ending));
        let sections = self.sections(&held, to);
        let ats: Vec<_> = held
            .guard
            .keys()
            .map(|key| (key.clone(), held.guard.mode()))
            .collect();
        let began = Instant::now();
        let released = match releases {
            true => patience.bear(held.guard.release()).await,
            false => {
                drop(held.guard);
                None
            }
        };
        if began.elapsed() > plan.lease.duration() + CHECKS {
            let text = format!("{} was released for {:?}", self.name, began.elapsed());
            self.log.violated("L4", text);
        }
        let confirmed = matches!(released, Some(Ok(())));
        self.log
            .note(|| format!("{} ended: {released:?}", self.name));
        if confirmed {
            for (key, mode) in &ats {
                let client = self.locks.id();
                let at = Guarded {
                    key,
                    mode: *mode,
                    client,
                };
                let from = (held.since, held.from);
                if !self.checked_stores.carried(at, from, (began, to)) {
                    let text = format!("{} had {key} confirmed, which had a gap", self.name);
                    self.log.violated("S9", text);
                }
            }
        }
        self.log.count(match confirmed {
            true => "confirmed",
            false => "unconfirmed",
        });
        for mut section in sections {
            section.confirmed = confirmed;
            self.log.section(section);
        }
    }

    fn sections(&self, held: &Held, to: u64) -> Vec<Section> {
        let guard = &held.guard;
        let several = guard.keys().count() > 1;
        guard
            .keys()
            .map(|key| Section {
                key: key.as_str().into(),
                excludes: guard.mode().is_exclusive(),
                permits: match guard.mode() {
                    LockMode::Permit(limit) => Some(limit.get()),
                    _ => None,
                },
                owner: held.owner,
                asked: held.asked,
                from: held.from,
                to,
                held: !guard.is_lost(),
                confirmed: false,
                // A guard of several keys has only the token of the first one.
                token: guard
                    .fencing_token()
                    .filter(|_| !several)
                    .map(|token| token.value()),
            })
            .collect()
    }
}

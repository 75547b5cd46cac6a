//! What a flawed store answers.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Inspect, Inspection, LockStore, Outcome, Record, Released,
    Renewal, SeveralOutcome, Wakeups, Want,
};
use tower_distributed_lock::{FencingToken, LockKey, MemoryStore};

use super::{Flaw, Flawed};

impl LockStore for Flawed {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        if let Some(answer) = self.answers(attempt).await? {
            return Ok(answer);
        }
        let mut outcome = self.store.acquire(&self.changed(attempt).await?).await?;
        match &mut outcome {
            Outcome::Refused { .. } if self.shows(Flaw::GrantsTwice) => {
                let token = attempt.fencing.map(|_| FencingToken::new(u64::MAX / 2));
                outcome = Outcome::Granted { token };
            }
            Outcome::Granted { token: Some(token) } if self.flaw == Flaw::RepeatsTokens => {
                *token = FencingToken::new(7);
            }
            Outcome::Granted { .. } if self.flaw == Flaw::OneTimeToLive => {
                self.knows(&attempt.hold);
            }
            Outcome::Granted { .. } => {
                self.forgets(&attempt.hold);
            }
            Outcome::Refused { .. } => {}
        }
        self.answering.pass().await;
        Ok(outcome)
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let answer = self.store.acquire_several(attempts, want).await;
        if let (Flaw::KeepsAPart, Want::All, Ok(SeveralOutcome::Refused { .. })) =
            (self.flaw, want, &answer)
        {
            self.store.acquire(&attempts[0]).await?;
        }
        answer
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        if renewals.iter().any(|renewal| renewal.lease.is_some()) {
            self.renewing.pass().await;
        }
        let mut statuses = self.store.renew(renewals).await?;
        for (Renewal { hold, lease, .. }, status) in renewals.iter().zip(&mut statuses) {
            let renewed = lease.map(|lease| Attempt::new(hold.clone(), lease));
            match (self.flaw, renewed) {
                (Flaw::RenewsTheLost, _) | (Flaw::Confirms, None) => *status = HoldStatus::Held,
                // To acquire is to set the lease.
                (Flaw::Shortens, Some(attempt)) if *status == HoldStatus::Held => {
                    self.store.acquire(&attempt).await?;
                }
                (Flaw::Resurrects, Some(attempt)) => {
                    if let Ok(Outcome::Granted { .. }) = self.store.acquire(&attempt).await {
                        *status = HoldStatus::Held;
                    }
                }
                (Flaw::OneTimeToLive, Some(Attempt { lease, .. })) => {
                    let readers = self.known.lock().unwrap().clone().into_iter();
                    let all: Vec<_> = readers.map(|hold| Renewal::new(hold, lease)).collect();
                    self.store.renew(&all).await?;
                }
                _ => {}
            }
        }
        if self.flaw == Flaw::Confuses {
            statuses.reverse();
        }
        Ok(statuses)
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        let mut released = match record {
            None => self.end(hold).await?,
            Some(record) => self.end_recording(hold, record).await?,
        };
        if self.flaw == Flaw::Confirms {
            released.status = HoldStatus::Held;
        }
        Ok(released)
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        let record = self.store.record(key).await?;
        Ok(match record {
            Some(_) if self.shows(Flaw::LosesRecords) => None,
            Some(record) if self.flaw == Flaw::GarblesRecords => {
                let (last, rest) = record.split_last().expect("a record says something");
                Some([rest, &[last ^ 1]].concat().into())
            }
            record => record,
        })
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        match self.flaw {
            Flaw::WithdrawsNothing => return Ok(()),
            Flaw::WithdrawsOthers if unanswered => {
                self.store.force_unlock(&attempt.hold.key).await?;
            }
            _ => {}
        }
        self.forgets(&attempt.hold);
        let unanswered = unanswered && self.flaw != Flaw::ForgetsWithdrawals;
        self.store.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.subscribing.pass().await;
        match self.flaw {
            Flaw::WakesNone | Flaw::Sleepy => {
                let (signal, wakeups) = watch::channel(());
                return Ok(Wakeups::new(wakeups, signal));
            }
            Flaw::WakesAll => {
                let all = attempt.clone().in_line(false);
                return self.store.subscribe(&all).await;
            }
            Flaw::ListensLate => return Ok(listen_late(self.store.clone(), attempt.clone())),
            Flaw::KeepsListeners => std::mem::forget(self.store.subscribe(attempt).await?),
            Flaw::SleepsAfterSubscribing => self.knows(&attempt.hold),
            _ => {}
        }
        self.store.subscribe(attempt).await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

fn listen_late(store: MemoryStore, attempt: Attempt) -> Wakeups {
    let (signal, wakeups) = watch::channel(());
    tokio::spawn(async move {
        sleep(Duration::from_millis(5)).await;
        let mut woken = store.subscribe(&attempt).await.expect("it never fails");
        let relaying = async {
            while woken.wait().await {
                signal.send_replace(());
            }
        };
        tokio::select! {
            () = relaying => {}
            () = signal.closed() => {}
        }
    });
    Wakeups::new(wakeups, ())
}

impl Inspect for Flawed {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        self.store.inspect(key).await
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        self.store.force_unlock(key).await
    }
}

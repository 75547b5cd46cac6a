//! The answers of all sentinels as one.

use std::cmp::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use super::{Master, detail};
use crate::error::StoreError;
use crate::store::redis::protocol::failure::{more_telling, refused, unreachable};

/// How long to wait for the other sentinels after the first answer.
const GRACE: Duration = Duration::from_millis(250);

/// Takes the answer with the highest configuration epoch. Of several, it is the `known` master, which some sentinels may name by its
/// IP address and others by its host name; otherwise the first. Returns it with the number of sentinels that know nothing newer.
///
/// Waits for more than half of the sentinels, and for one that knows the `known` epoch, which may rise meanwhile: during a failover,
/// most of them still name the former master. Without these, the answers that came within `limit`, and within [`GRACE`] of the first
/// one, decide.
pub(super) async fn gather(
    mut asking: FuturesUnordered<impl Future<Output = Result<Option<Master>, StoreError>>>,
    known: impl Fn() -> Option<Master>,
    limit: Duration,
    name: &str,
) -> Result<(Master, usize), StoreError> {
    let most = asking.len() / 2 + 1;
    let mut over = Instant::now() + limit;
    let (mut best, mut failed) = (None::<Master>, None::<StoreError>);
    let (mut told, mut unknown) = (0, false);
    let is_former = |best: &Master| known().is_some_and(|known| best.epoch < known.epoch);
    while told < most || best.as_ref().is_none_or(is_former) {
        let answer = tokio::select! {
            answer = asking.next() => answer,
            () = sleep_until(over) => None,
        };
        match answer {
            Some(Ok(Some(master))) => {
                told += 1;
                over = over.min(Instant::now() + GRACE);
                let is_better = |best: &Master| match best.epoch.cmp(&master.epoch) {
                    Ordering::Less => true,
                    Ordering::Equal => known().as_ref() == Some(&master),
                    Ordering::Greater => false,
                };
                if best.as_ref().is_none_or(is_better) {
                    best = Some(master);
                }
            }
            Some(Ok(None)) => unknown = true,
            Some(Err(error)) => failed = Some(more_telling(failed, error)),
            None => break,
        }
    }
    best.map(|master| (master, told))
        .ok_or_else(|| match (unknown, failed) {
            (true, _) => refused(format!("the sentinels know no master named `{name}`")),
            (false, Some(error)) => StoreError::new(
                error.kind(),
                format!("no sentinel says where `{name}` is: {}", detail(&error)),
            ),
            (false, None) => unreachable(format!("no sentinel said in time where `{name}` is")),
        })
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::store::redis::link::address::Address;

    const LIMIT: Duration = Duration::from_secs(2);
    const FORMER: (u16, u64) = (6379, 3);
    const NEW: (u16, u64) = (6380, 4);

    fn master((port, epoch): (u16, u64)) -> Master {
        let address = Address::new("localhost", port);
        Master { address, epoch }
    }

    /// Sentinels that each answer with a port and an epoch after so many milliseconds.
    async fn reply(sentinels: &[(u64, Option<(u16, u64)>)], known: (u16, u64)) -> (u16, bool) {
        let asking = sentinels.iter().map(async |&(after, answer)| {
            sleep(Duration::from_millis(after)).await;
            answer
                .map(|answer| Some(master(answer)))
                .ok_or_else(|| unreachable("refused"))
        });
        let reply = gather(asking.collect(), || Some(master(known)), LIMIT, "main");
        let (master, told) = reply.await.unwrap();
        (master.address.port, told > sentinels.len() / 2)
    }

    #[tokio::test(start_paused = true)]
    async fn a_majority_that_does_not_know_a_failover_is_not_taken_before_the_others_answer() {
        let sentinels = [(0, Some(FORMER)), (0, Some(FORMER)), (200, Some(NEW))];
        assert_eq!(reply(&sentinels, NEW).await, (6380, true));
        // The failover is new: a majority is enough, and the next question returns it.
        assert_eq!(reply(&sentinels, FORMER).await, (6379, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_majority_that_knows_less_is_believed_when_the_others_are_silent() {
        for other in [(300, Some(NEW)), (1, None)] {
            let began = Instant::now();
            let sentinels = [(0, Some(FORMER)), (0, Some(FORMER)), other];
            assert_eq!(reply(&sentinels, NEW).await, (6379, true));
            assert!(began.elapsed() <= GRACE + Duration::from_millis(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_minority_answers_for_itself_and_says_so() {
        let sentinels = [(0, Some(NEW)), (3000, Some(NEW)), (3000, Some(NEW))];
        assert_eq!(reply(&sentinels, FORMER).await, (6380, false));
    }
    /// Connections to the one name would be replaced by those to the other, whenever another sentinel answers first.
    #[tokio::test(start_paused = true)]
    async fn a_master_with_two_names_keeps_the_one_that_is_known() {
        let names = [FORMER, (6380, FORMER.1)];
        for (first, second) in [(0, 1), (1, 0)] {
            let sentinels = [(first, Some(names[0])), (second, Some(names[1]))];
            for known in names {
                assert_eq!(reply(&sentinels, known).await, (known.0, true));
            }
        }
    }
}

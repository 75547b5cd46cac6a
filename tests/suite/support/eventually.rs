//! Waits for a condition instead of sleeping.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Calls `probe` until it succeeds, and returns its result.
///
/// A probe answers with a `bool`, an `Option<T>` or a `Result<T, impl Debug>`; the panic shows the last refusal. `limit` is the
/// bound of a liveness promise or a generous guess, and never the expected duration. A probe that hangs is aborted at `limit`.
pub(crate) async fn eventually<A: Answer>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> A,
) -> A::Found {
    const PAUSE: Duration = Duration::from_millis(5);

    let started = Instant::now();
    let mut last = String::from("no answer at all");
    while let Some(left) = limit.checked_sub(started.elapsed()) {
        match tokio::time::timeout(left, probe()).await.map(A::verdict) {
            Ok(Ok(found)) => return found,
            Ok(Err(refusal)) => last = refusal,
            Err(_) => break,
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("not within {limit:?}: {what} (last seen: {last})");
}

/// What a probe may return.
pub(crate) trait Answer {
    type Found;

    fn verdict(self) -> Result<Self::Found, String>;
}

impl Answer for bool {
    type Found = ();

    fn verdict(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".into())
    }
}

impl<T> Answer for Option<T> {
    type Found = T;

    fn verdict(self) -> Result<T, String> {
        self.ok_or_else(|| "none".into())
    }
}

impl<T, E: Debug> Answer for Result<T, E> {
    type Found = T;

    fn verdict(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_yes_is_returned() {
        let mut asked = 0;
        let found = eventually("three questions", Duration::from_secs(10), async || {
            asked += 1;
            (asked == 3).then_some(asked)
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    #[should_panic(expected = r#"not within 20ms: the moon is cheese (last seen: "still rock")"#)]
    async fn the_panic_names_the_fact_and_the_last_refusal() {
        eventually(
            "the moon is cheese",
            Duration::from_millis(20),
            async || Err::<(), _>("still rock"),
        )
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 20ms: an answer (last seen: no answer at all)")]
    async fn a_probe_that_hangs_is_cut_off() {
        eventually("an answer", Duration::from_millis(20), async || {
            std::future::pending::<bool>().await
        })
        .await;
    }
}

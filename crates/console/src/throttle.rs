//! Log lines that a stranger may cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(60);

/// Lets one log line a minute through. The mutex protects the time of the last line and the number of lines left out since.
#[derive(Debug, Default)]
pub(crate) struct OncePerMinute(Mutex<(Option<Instant>, u64)>);

impl OncePerMinute {
    /// Whether a line is due. If so, returns how many were left out since the last one.
    pub(crate) fn due(&self) -> Option<u64> {
        let (last, left_out) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if last.is_some_and(|last| now < last + PAUSE) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::Mutex;

/// The time between two lines, unless another is chosen.
const PAUSE: Duration = Duration::from_secs(60);

/// Lets one log line a minute through, where each request may cause one.
///
/// The mutex protects the time of the last line and the number of lines that were left out since.
#[derive(Debug)]
pub(crate) struct Seldom {
    pause: Duration,
    last: Mutex<Last>,
}

impl Default for Seldom {
    fn default() -> Self {
        Self::every(PAUSE)
    }
}

#[derive(Debug, Default)]
struct Last {
    line: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// Lets one line through in each such time.
    pub(crate) fn every(pause: Duration) -> Self {
        Self {
            pause,
            last: Mutex::default(),
        }
    }

    /// Whether a line is due. If so, returns how many were left out since the last one.
    pub(crate) fn due(&self) -> Option<u64> {
        self.due_if(false)
    }

    /// The same; a line that `must` be logged is always due.
    pub(crate) fn due_if(&self, must: bool) -> Option<u64> {
        let now = Instant::now();
        let mut last = self.last.lock();
        if !must && last.line.is_some_and(|line| now < line + self.pause) {
            last.left_out += 1;
            return None;
        }
        last.line = Some(now);
        Some(std::mem::take(&mut last.left_out))
    }

    /// No line is due or left out meanwhile.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Sized {
        self.last.lock()
    }
}

/// The largest number of composed texts that have a throttle of their own.
const TEXTS: usize = 32;

/// Lets one line a minute through for each text, so that a frequent one hides no other. Composed texts beyond the first [`TEXTS`]
/// share a line.
///
/// The mutex protects the throttles of the texts. Only that of the text is locked under it.
#[derive(Debug, Default)]
pub(crate) struct SeldomByText(Mutex<HashMap<Cow<'static, str>, Seldom>>);

impl SeldomByText {
    /// Whether a line with this text is due. If so, returns how many were left out since the last one.
    pub(crate) fn due(&self, text: impl Into<Cow<'static, str>>) -> Option<u64> {
        let mut text = text.into();
        let mut throttles = self.0.lock();
        let is_known = throttles.contains_key(&text);
        if matches!(text, Cow::Owned(_)) && throttles.len() >= TEXTS && !is_known {
            text = Cow::Borrowed("");
        }
        throttles.entry(text).or_default().due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_text_hides_no_other_and_their_number_is_bounded() {
        let seldom = SeldomByText::default();
        for n in 0..TEXTS {
            assert_eq!(seldom.due(n.to_string()), Some(0), "{n}");
        }
        assert_eq!(seldom.due("0".to_owned()), None);
        assert_eq!(seldom.due("one more".to_owned()), Some(0));
        assert_eq!(seldom.due("yet another".to_owned()), None);
        assert_eq!(seldom.due("a constant"), Some(0));
        assert_eq!(seldom.0.lock().len(), TEXTS + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_line_a_minute_says_how_many_were_left_out() {
        let seldom = Seldom::default();
        assert_eq!(seldom.due(), Some(0));
        for _ in 0..59 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(seldom.due(), None);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(seldom.due(), Some(59));
        tokio::time::advance(PAUSE).await;
        assert_eq!(seldom.due(), Some(0));
    }
}

//! Questions to a Redisson, and its answers.

use std::fmt::{self, Display};
use std::pin::Pin;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::LIMIT;

/// A question that was sent already; await it for the answer.
#[derive(Debug)]
#[must_use = "an answer that is not read hides an exception"]
pub(in crate::interop) struct Asked<T> {
    question: String,
    answer: oneshot::Receiver<String>,
    read: fn(&str) -> T,
}

impl<T: Reading> Asked<T> {
    pub(super) fn new(question: &impl Display, answer: oneshot::Receiver<String>) -> Self {
        Self {
            question: question.to_string(),
            answer,
            read: T::read,
        }
    }
}

impl<T: 'static> IntoFuture for Asked<T> {
    type Output = Answer<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Answer<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let line = match timeout(LIMIT, self.answer).await {
                Ok(Ok(line)) => line,
                Ok(Err(_)) => panic!("Redisson has ended and does not answer `{}`", self.question),
                Err(_) => panic!(
                    "Redisson does not answer `{}` within {LIMIT:?}",
                    self.question
                ),
            };
            Answer::parse(&line, self.read)
                .unwrap_or_else(|| panic!("`{line}` answers `{}`", self.question))
        })
    }
}

/// The result of a question, and the time of its execution by the clock of [`now`].
#[derive(Debug)]
pub(in crate::interop) struct Answer<T> {
    pub(in crate::interop) began: Duration,
    pub(in crate::interop) ended: Duration,
    pub(in crate::interop) result: Result<T, Exception>,
}

impl<T> Answer<T> {
    fn parse(line: &str, read: fn(&str) -> T) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let verdict = words.next()?;
        let began = Duration::from_micros(words.next()?.parse().ok()?);
        let ended = Duration::from_micros(words.next()?.parse().ok()?);
        let rest = words.next().unwrap_or_default();
        let result = match verdict {
            "ok" => Ok(read(rest)),
            "err" => Err(Exception(rest.to_owned())),
            _ => return None,
        };
        Some(Self {
            began,
            ended,
            result,
        })
    }

    /// The result; an exception fails the test.
    pub(in crate::interop) fn unwrap(self) -> T {
        self.result
            .unwrap_or_else(|exception| panic!("Redisson threw {exception}"))
    }
}

/// An exception of Redisson: `<class>: <message>`.
#[derive(Debug)]
pub(in crate::interop) struct Exception(String);

impl Exception {
    /// Whether it means that the caller is not the owner.
    pub(in crate::interop) fn is_not_owner(&self) -> bool {
        self.0
            .starts_with("IllegalMonitorStateException: attempt to unlock lock")
    }
}

impl Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A type that an answer can be read as.
pub(in crate::interop) trait Reading {
    fn read(text: &str) -> Self;
}

impl Reading for () {
    fn read(text: &str) {
        assert_eq!(text, "", "there should be no result");
    }
}

impl Reading for bool {
    fn read(text: &str) -> Self {
        text.parse().expect("true or false")
    }
}

impl Reading for u64 {
    fn read(text: &str) -> Self {
        text.parse().expect("a number")
    }
}

impl Reading for String {
    fn read(text: &str) -> Self {
        text.to_owned()
    }
}

/// CLOCK_MONOTONIC, which all processes of the machine share.
pub(in crate::interop) fn now() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("there is a monotonic clock");
    time.into()
}

//! Settings from the environment. An invalid value ends the server with the name of its variable.

use std::env::{self, VarError};
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::signature::Secret;

/// A day (ms): the retention of webhook records. A lease must not be longer.
const DAY: u64 = 24 * 60 * 60 * 1000;

pub(crate) struct Settings {
    pub(crate) listen: String,
    pub(crate) admin_listen: Option<String>,
    pub(crate) allow_force_unlock: bool,
    pub(crate) redis: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    /// How long a request may take beside the wait for its locks.
    pub(crate) work: Duration,
    pub(crate) secret: Option<Secret>,
}

impl Settings {
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        let secret = variable("WEBHOOK_SECRET")?;
        let secret = secret.as_deref().map(Secret::parse).transpose();
        Ok(Self {
            listen: variable("LISTEN")?.unwrap_or_else(|| "127.0.0.1:3000".to_owned()),
            admin_listen: variable("ADMIN_LISTEN")?,
            allow_force_unlock: yes("ALLOW_FORCE_UNLOCK")?,
            redis: variable("REDIS_URL")?,
            data: variable("DATA_URL")?,
            lease: milliseconds("LOCK_LEASE_MS", 30_000, 10..=DAY)?,
            wait: milliseconds("LOCK_WAIT_MS", 10_000, 0..=DAY)?,
            work: milliseconds("WORK_LIMIT_MS", 90_000, 10..=DAY)?,
            secret: secret.context("WEBHOOK_SECRET")?,
        })
    }
}

fn yes(name: &str) -> anyhow::Result<bool> {
    match variable(name)?.as_deref() {
        None | Some("no") => Ok(false),
        Some("yes") => Ok(true),
        Some(value) => bail!("{name}={value}: choose yes or no"),
    }
}

fn milliseconds(
    name: &str,
    default: u64,
    allowed: RangeInclusive<u64>,
) -> anyhow::Result<Duration> {
    let Some(value) = variable(name)? else {
        return Ok(Duration::from_millis(default));
    };
    match value.parse() {
        Ok(milliseconds) if allowed.contains(&milliseconds) => {
            Ok(Duration::from_millis(milliseconds))
        }
        _ => bail!(
            "{name}={value}: choose from {} to {} ms",
            allowed.start(),
            allowed.end()
        ),
    }
}

/// `None` if the variable is not set. A value that is not UTF-8 is an error, not `None`: the server would run without Redis, or
/// without a secret.
fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        // The value is not shown: it may be a secret.
        Err(VarError::NotUnicode(_)) => bail!("{name} is not valid UTF-8"),
    }
}

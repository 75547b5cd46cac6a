//! Where the time of the machine's cores goes during a load.

use std::fs;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::server::{Server, cpu_time};

/// The time of all cores during a load.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    /// Of this process.
    pub(crate) own: Duration,
    pub(crate) redis: Duration,
    /// Of the clients in another process, which they count themselves.
    pub(crate) clients: Duration,
    pub(crate) idle: Duration,
    /// The time that has passed, for each core.
    pub(crate) all: Duration,
}

impl Spent {
    pub(crate) const NOTHING: Self = Self {
        own: Duration::ZERO,
        redis: Duration::ZERO,
        clients: Duration::ZERO,
        idle: Duration::ZERO,
        all: Duration::ZERO,
    };
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.own += more.own;
        self.redis += more.redis;
        self.clients += more.clients;
        self.idle += more.idle;
        self.all += more.all;
    }
}

/// A running measurement.
pub(crate) struct Meter<'a> {
    server: &'a Server,
    began: Instant,
    before: Spent,
}

impl<'a> Meter<'a> {
    pub(crate) fn begin(server: &'a Server) -> Result<Self> {
        Ok(Self {
            server,
            began: Instant::now(),
            before: now(server)?,
        })
    }

    pub(crate) fn end(self) -> Result<Spent> {
        let after = now(self.server)?;
        let cores = u32::try_from(std::thread::available_parallelism()?.get())?;
        Ok(Spent {
            own: after.own - self.before.own,
            redis: after.redis - self.before.redis,
            clients: Duration::ZERO,
            idle: after.idle.saturating_sub(self.before.idle),
            all: self.began.elapsed() * cores,
        })
    }
}

fn now(server: &Server) -> Result<Spent> {
    Ok(Spent {
        own: cpu_time("/proc/self/stat")?,
        redis: server.cpu()?,
        idle: idle()?,
        ..Spent::NOTHING
    })
}

/// The time in which a core had nothing to do, of all cores together, in steps of 10 ms.
fn idle() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let mut words = text.split_whitespace().skip(4);
    let mut next = || -> Result<u64> { Ok(words.next().context("a short /proc/stat")?.parse()?) };
    // Without work, and without other work than a disk's.
    Ok(Duration::from_millis(10 * (next()? + next()?)))
}

/// The processor time of the calling thread so far, to the nanosecond.
pub(crate) fn of_this_thread() -> Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next();
    Ok(Duration::from_nanos(
        nanos.context("a short schedstat")?.parse()?,
    ))
}

/// The microseconds of each operation, as a cell of a table.
pub(crate) fn each(time: Duration, operations: f64) -> String {
    crate::samples::digits(time.as_secs_f64() * 1e6 / operations)
}

//! Several processes that want the same locks.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::contender::Contender;
use crate::load::{Load, Until};
use crate::program::Program;
use crate::samples::Latencies;

/// The first argument of a process that is one of a [`Crowd`].
pub(crate) const MEMBER: &str = "--member";

/// How long the members have to spawn their tasks before a load starts.
const PREPARATION: Duration = Duration::from_millis(5);

/// Processes of one contender, each with a client of its own. They end with their value.
pub(crate) struct Crowd {
    members: Vec<Member>,
}

struct Member(Program);

/// The result of a load in all processes together.
pub(crate) struct Turnout {
    /// The sections of each process.
    pub(crate) shares: Vec<u64>,
    /// From the common start to the last end.
    pub(crate) elapsed: Duration,
    pub(crate) waits: Latencies,
    /// The total time for which the lock was held.
    pub(crate) held: Duration,
}

/// The result of one process.
struct Turn {
    elapsed: Duration,
    held: Duration,
    waits: Latencies,
}

impl Turnout {
    pub(crate) fn sections(&self) -> u64 {
        self.shares.iter().sum()
    }

    pub(crate) fn rate(&self) -> f64 {
        self.sections() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Crowd {
    pub(crate) async fn start(contender: Contender, url: &str, processes: usize) -> Result<Self> {
        let members = (0..processes).map(|_| Member::start(contender, url));
        Ok(Self {
            members: try_join_all(members).await?,
        })
    }

    /// Makes every process run `load`, from the same instant on.
    pub(crate) async fn run(&mut self, load: &Load) -> Result<Turnout> {
        let start = SystemTime::now().duration_since(UNIX_EPOCH)? + PREPARATION;
        let order = format!("{} {}", start.as_nanos(), to_words(load));
        let turns = self.members.iter_mut().map(|member| member.run(&order));
        let turns = timeout(Duration::from_secs(60), try_join_all(turns)).await??;
        let mut turnout = Turnout {
            shares: Vec::new(),
            elapsed: Duration::ZERO,
            waits: Latencies::new(),
            held: Duration::ZERO,
        };
        for turn in turns {
            turnout.shares.push(turn.waits.len());
            turnout.elapsed = turnout.elapsed.max(turn.elapsed);
            turnout.waits.merge(&turn.waits);
            turnout.held += turn.held;
        }
        Ok(turnout)
    }
}

impl Member {
    async fn start(contender: Contender, url: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut program = Program::start(command.args([MEMBER, contender.name(), url]))?;
        match program.hear().await?.as_str() {
            "ready" => Ok(Self(program)),
            line => bail!("a process says: {line}"),
        }
    }

    async fn run(&mut self, order: &str) -> Result<Turn> {
        let line = self.0.ask(order).await?;
        let words: Vec<_> = line.split(' ').collect();
        let [elapsed, held, waits] = words[..] else {
            bail!("a process says: {line}");
        };
        Ok(Turn {
            elapsed: Duration::from_nanos(elapsed.parse()?),
            held: Duration::from_nanos(held.parse()?),
            waits: Latencies::decode(waits)?,
        })
    }
}

/// The main loop of a member: runs each load that it reads, until its input ends.
pub(crate) async fn live(contender: &str, url: &str) -> Result<()> {
    let locks = Arc::new(Contender::by_name(contender)?.connect(url).await?);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    println!("ready");
    while let Some(order) = orders.next_line().await? {
        let (start, load) = order.split_once(' ').context("an order has two parts")?;
        let start = UNIX_EPOCH + Duration::from_nanos(start.parse()?);
        let outcome = from_words(load)?.run(&locks, start).await?;
        println!(
            "{} {} {}",
            outcome.elapsed.as_nanos(),
            outcome.held.as_nanos(),
            outcome.waits.encode()
        );
    }
    std::process::exit(0)
}

fn to_words(load: &Load) -> String {
    let key = load.key.as_deref().unwrap_or("-");
    let until = match load.until {
        Until::Rounds(rounds) => format!("rounds {rounds}"),
        Until::After(time) => format!("after {}", time.as_millis()),
    };
    format!("{key} {} {until} {}", load.tasks, load.hold.as_micros())
}

fn from_words(words: &str) -> Result<Load> {
    let words: Vec<_> = words.split(' ').collect();
    let [key, tasks, kind, until, hold] = words[..] else {
        bail!("a load has five words");
    };
    Ok(Load {
        key: (key != "-").then(|| key.to_owned()),
        tasks: tasks.parse()?,
        until: match kind {
            "rounds" => Until::Rounds(until.parse()?),
            _ => Until::After(Duration::from_millis(until.parse()?)),
        },
        hold: Duration::from_micros(hold.parse()?),
    })
}

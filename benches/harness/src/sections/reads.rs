//! Many readers of one key, and a writer among them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use crate::Bench;
use crate::contender::Contender;
use crate::cores::one_thread_runtime;
use crate::load::{Load, Outcome, Until};
use crate::meter::{Meter, Spent, each};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Latencies, Rate, Time, digits, median, ratio};
use crate::server::Server;
use crate::wire;

const READERS: usize = 64;

/// How long a read hold accepts new readers; the client's default.
const SHARE_WINDOW: Duration = Duration::from_millis(5);

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let unshared = Arc::new(Contender::ReadUnshared.connect(server.url()).await?);
    let apart = Arc::new(Contender::Read.connect(server.url()).await?);
    let time = Until::After(Duration::from_millis(400));
    let one_key = Load::on("read", READERS, time);
    let own_keys = Load::apart(READERS, time);
    let mut table = TABLE.to_owned();
    for contender in [Contender::Read, Contender::ReadUnconfirmed] {
        let locks = Arc::new(contender.connect(server.url()).await?);
        let [mut together, mut each, mut alone] = [const { Reads::new() }; 3];
        for repetition in 0..bench.repetitions(5) {
            bench.report.progress(&format!(
                "{READERS} readers, repetition {}: {}",
                repetition + 1,
                contender.name()
            ));
            together.add(&server, one_key.run_now(&locks)).await?;
            each.add(&server, one_key.run_now(&unshared)).await?;
            alone.add(&server, own_keys.run_now(&apart)).await?;
        }
        let ending = match contender {
            Contender::Read => "",
            _ => ", unconfirmed",
        };
        bench.report.row(
            &format!("hot reads, 64 tasks{ending} / an acquire and a release for each"),
            AtLeast(8.0),
            ratio(&together.rates, &each.rates),
            format!(
                "{} against {} with nothing shared",
                Rate(median(&together.rates)),
                Rate(median(&each.rates))
            ),
        );
        bench.report.fact(
            &format!("hot reads, 64 tasks{ending} / a pair for each on a key of its own"),
            ratio(&together.rates, &alone.rates),
            format!(
                "{} against {}",
                Rate(median(&together.rates)),
                Rate(median(&alone.rates))
            ),
        );
        table += &together.line(&format!("shared{ending}"));
        if contender == Contender::Read {
            table += &one_thread(bench, &server, &one_key)
                .await?
                .line("shared, with one thread for all tasks of the client");
            table += &each.line("an acquire and a release for each");
            table += &alone.line("a pair for each on a key of its own");
        }
    }
    bench.report.note(&table);
    bench.report.append(&table);
    writer(bench, &server).await
}

const TABLE: &str = "## Where the time of hot reads goes\n\n64 tasks; processor time and idle time of all cores, of each read. \
    What is missing in the sum is other work of the machine.\n\n\
    | reads | rate | client, µs | Redis, µs | idle, µs | all cores, µs | reads a script |\n\
    | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";

/// The figures of one way to read.
struct Reads {
    rates: Vec<f64>,
    sections: u64,
    scripts: u64,
    spent: Spent,
}

impl Reads {
    const fn new() -> Self {
        Self {
            rates: Vec::new(),
            sections: 0,
            scripts: 0,
            spent: Spent::NOTHING,
        }
    }

    async fn add(
        &mut self,
        server: &Server,
        load: impl Future<Output = Result<Outcome>>,
    ) -> Result<()> {
        let scripts = server.scripts().await?;
        let meter = Meter::begin(server)?;
        let outcome = load.await?;
        self.spent += meter.end()?;
        self.scripts += server.scripts().await? - scripts;
        self.sections += outcome.sections;
        self.rates.push(outcome.rate());
        Ok(())
    }

    fn line(&self, name: &str) -> String {
        let sections = self.sections as f64;
        let Spent {
            own,
            redis,
            idle,
            all,
            ..
        } = self.spent;
        let [own, redis, idle, all] = [own, redis, idle, all].map(|time| each(time, sections));
        format!(
            "| {name} | {} | {own} | {redis} | {idle} | {all} | {} |\n",
            Rate(median(&self.rates)),
            digits(sections / self.scripts as f64)
        )
    }
}

/// The same readers in a runtime with one thread.
async fn one_thread(bench: &Bench, server: &Server, load: &Load) -> Result<Reads> {
    let mut reads = Reads::new();
    for _ in 0..bench.repetitions(5) {
        let (url, load) = (server.url().to_owned(), load.clone());
        let running = tokio::task::spawn_blocking(move || {
            let runtime = one_thread_runtime()?;
            runtime.block_on(async {
                let locks = Arc::new(Contender::Read.connect(&url).await?);
                load.run_now(&locks).await
            })
        });
        reads.add(server, async { running.await? }).await?;
    }
    Ok(reads)
}

/// A writer in another client, during continuous reads of a millisecond.
async fn writer(bench: &mut Bench, server: &Server) -> Result<()> {
    let bare = wire::pings(server, 2_000, Duration::ZERO).await?.median();
    let readers = Arc::new(Contender::Read.connect(server.url()).await?);
    let mut ratios = Vec::new();
    let mut seen = String::new();
    for repetition in 0..bench.repetitions(3) {
        bench.report.progress(&format!(
            "a writer among readers, repetition {}",
            repetition + 1
        ));
        let load = Load::on(
            "written",
            READERS,
            Until::After(Duration::from_millis(1_000)),
        );
        let load = load.holding(Duration::from_millis(1));
        let writing = tokio::spawn(write(server.url().to_owned(), Duration::from_millis(900)));
        let reads = load.run_now(&readers).await?;
        let waits = writing.await??;
        let bound = SHARE_WINDOW + reads.longest + 2 * bare;
        ratios.push(waits.worst().as_secs_f64() / bound.as_secs_f64());
        seen = format!(
            "{waits}, of {}; longest read {}; {} reads",
            waits.len(),
            Time(reads.longest),
            reads.sections
        );
    }
    let what = "a writer's worst wait / share window + longest read + 2 round trips";
    bench.report.row(what, AtMost(1.0), median(&ratios), seen);
    Ok(())
}

async fn write(url: String, time: Duration) -> Result<Latencies> {
    let client = LockClient::new(RedisStore::connect(url).await?);
    let (mut waits, began) = (Latencies::new(), Instant::now());
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let asked = Instant::now();
        let guard = client.lock("written").mode(LockMode::Write).await?;
        waits.record(asked.elapsed());
        guard.release().await?;
    }
    Ok(waits)
}

//! The worker processes, each behind proxies of its own.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::{env, thread};

use anyhow::{Context, Result};
use tokio::sync::mpsc;

use crate::clock::now;
use crate::event::Event;
use crate::habits::Habits;
use crate::history::History;
use crate::options::Options;
use crate::support::{Process, Proxy, RedisServer};
use crate::worker::Orders;

/// A place for workers, one after another.
pub(crate) struct Worker {
    pub(crate) process: Process,
    /// One to each server. They outlive the process.
    pub(crate) proxies: Vec<Proxy>,
    /// Different for every process of a run.
    pub(crate) generation: u64,
    stdin: ChildStdin,
}

/// All workers, and their events.
pub(crate) struct Crew {
    pub(crate) workers: Vec<Worker>,
    pub(crate) habits: Habits,
    seed: u64,
    generations: u64,
    sender: Sender,
    events: mpsc::UnboundedReceiver<(u64, Option<Event>)>,
    /// The generations that have ended.
    silent: HashSet<u64>,
}

/// `None` when a worker has ended.
type Sender = mpsc::UnboundedSender<(u64, Option<Event>)>;

impl Crew {
    /// Starts `options.procs` workers that use `servers`.
    pub(crate) async fn start(
        options: &Options,
        habits: Habits,
        servers: &[RedisServer],
    ) -> Result<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let mut crew = Self {
            workers: Vec::new(),
            habits,
            seed: options.seed,
            generations: 0,
            sender,
            events,
            silent: HashSet::new(),
        };
        for _ in 0..options.procs {
            let mut proxies = Vec::new();
            for server in servers {
                proxies.push(Proxy::in_front_of(server).await);
            }
            let worker = crew.hire(proxies)?;
            crew.workers.push(worker);
        }
        Ok(crew)
    }

    fn hire(&mut self, proxies: Vec<Proxy>) -> Result<Worker> {
        self.generations += 1;
        let generation = self.generations;
        let orders = Orders {
            urls: proxies.iter().map(Proxy::url).collect(),
            habits: self.habits.clone(),
            seed: self.seed ^ (generation << 32),
            first: generation << 32,
        };
        let mut command = Command::new(env::current_exe()?);
        command.args(["--worker", &serde_json::to_string(&orders)?]);
        let (process, stdin, stdout) =
            Process::spawn_piped(&mut command).context("a worker cannot be started")?;
        listen(stdout, generation, self.sender.clone());
        Ok(Worker {
            process,
            proxies,
            generation,
            stdin,
        })
    }

    /// SIGKILL, and another worker in its place. Returns how many sections it had under way.
    pub(crate) async fn replace(&mut self, place: usize, history: &mut History) -> Result<usize> {
        let mut dead = self.workers.swap_remove(place);
        dead.process.kill9();
        let at = now();
        self.hear_out(dead.generation, history).await;
        let under_way = history.under_way(dead.generation);
        history.killed(dead.generation, at);
        let worker = self.hire(dead.proxies)?;
        self.workers.push(worker);
        Ok(under_way)
    }

    /// Records the events so far.
    pub(crate) fn hear(&mut self, history: &mut History) {
        while let Ok((generation, event)) = self.events.try_recv() {
            self.take_down(generation, event, history);
        }
    }

    /// Records the events of a worker until it has ended.
    async fn hear_out(&mut self, generation: u64, history: &mut History) {
        while !self.silent.contains(&generation) {
            let said = self.events.recv().await;
            let (of, event) = said.expect("this crew has a sender itself");
            self.take_down(of, event, history);
        }
    }

    fn take_down(&mut self, generation: u64, event: Option<Event>, history: &mut History) {
        match event {
            Some(event) => history.add(generation, event),
            None => {
                self.silent.insert(generation);
            }
        }
    }

    /// Stops all workers, and waits until they have ended.
    pub(crate) async fn dismiss(&mut self, history: &mut History) -> Result<()> {
        for worker in &mut self.workers {
            writeln!(worker.stdin, "stop").context("a worker has died by itself")?;
        }
        for worker in std::mem::take(&mut self.workers) {
            self.hear_out(worker.generation, history).await;
        }
        Ok(())
    }
}

/// Reads on a separate thread: a worker must never wait for its reader.
fn listen(stdout: ChildStdout, generation: u64, sender: Sender) {
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The last line of a killed worker may be cut short.
            if let Ok(event) = serde_json::from_str(&line) {
                let _ = sender.send((generation, Some(event)));
            }
        }
        let _ = sender.send((generation, None));
    });
}

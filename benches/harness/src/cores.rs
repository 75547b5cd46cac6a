//! The cores that a server and its clients run on.

use std::process::{self, Command, Stdio};
use std::{fs, io};

use tokio::runtime::{Builder, Runtime};

use crate::server::Server;

/// A server on the last core, and this process, with those that it starts, on the first. It ends when this is dropped.
///
/// Otherwise the kernel decides whether a server and its only client share a core, again and again, and a round trip takes up to
/// five times as long as another. `None` if there is one core only, or no `taskset`.
pub(crate) struct Apart {
    server: u32,
    all: String,
}

impl Apart {
    pub(crate) fn begin(server: &Server) -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let mut lines = status.lines();
        let all = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let all = all.trim().to_owned();
        let ends = |at: char| at == ',' || at == '-';
        let (first, last) = (all.split(ends).next()?, all.rsplit(ends).next()?);
        let server = server.id()?;
        let apart = Self {
            server,
            all: all.clone(),
        };
        // What was done in part is undone when `apart` is dropped.
        let is_done = first != last && pin(server, last) && pin(process::id(), first);
        is_done.then_some(apart)
    }

    /// Says in a table whether it was done.
    pub(crate) fn note(apart: Option<&Self>) -> &'static str {
        match apart {
            Some(_) => "each on a core of its own",
            None => "on any core",
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for process in [self.server, process::id()] {
            if !pin(process, &self.all) {
                eprintln!("process {process} may be left on one core: do not trust what follows");
            }
        }
    }
}

/// A runtime with one thread for its tasks.
pub(crate) fn one_thread_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
}

/// Puts all threads of a process on some cores. Those that it starts later follow.
fn pin(process: u32, cores: &str) -> bool {
    // It fails at a thread that ends meanwhile.
    (0..20).any(|_| {
        let pinned = Command::new("taskset")
            .args(["-a", "-c", "-p", cores, &process.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        pinned.is_ok_and(|status| status.success())
    })
}

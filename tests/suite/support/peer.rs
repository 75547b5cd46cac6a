//! Other processes of this test binary, which tests control.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::pin::Pin;
use std::process::{ChildStdin, Command};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Process;

/// The environment variable that makes a run of this binary a peer.
const ROLE: &str = "TEST_PEER_ROLE";

/// The prefix of a peer's own lines among those of the test harness.
const MARK: &str = "peer> ";

/// The name of a role, and its function.
pub(crate) type Role = (
    &'static str,
    fn(Console) -> Pin<Box<dyn Future<Output = ()> + Send>>,
);

/// A process that plays a [`Role`]. Test and peer exchange lines. It is killed on drop.
///
/// It runs the same code as the test, in a process that can be killed, paused and terminated by itself.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) process: Process,
    role: &'static str,
    stdin: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Peer {
    /// Starts a peer that plays `role`, one of [`ROLES`](crate::roles::ROLES).
    pub(crate) fn start(role: &'static str) -> Self {
        let mut command = Command::new(env::current_exe().expect("the test binary has a path"));
        command
            .args(["--exact", crate::roles::ENTRY, "--nocapture"])
            .env(ROLE, role);
        let (process, stdin, stdout) =
            Process::spawn_piped(&mut command).expect("the test binary can be run");
        let lines = lines(
            stdout,
            |line| Some(line.split_once(MARK)?.1.to_owned()),
            || (),
        );
        Self {
            process,
            role,
            stdin,
            lines,
        }
    }

    /// Sends it a line.
    pub(crate) fn tell(&mut self, line: impl Display) {
        let told = writeln!(self.stdin, "{line}");
        told.unwrap_or_else(|error| panic!("`{line}` for peer `{}`: {error}", self.role));
    }

    /// The next line from it.
    pub(crate) async fn hear(&mut self) -> String {
        const LIMIT: Duration = Duration::from_secs(120);
        match tokio::time::timeout(LIMIT, self.lines.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => panic!("peer `{}` has ended", self.role),
            Err(_) => panic!("peer `{}` said nothing for {LIMIT:?}", self.role),
        }
    }
}

/// A peer's connection to the test.
#[derive(Debug)]
pub(crate) struct Console {
    lines: mpsc::UnboundedReceiver<String>,
}

impl Console {
    /// The next line from the test. When the test has ended, the process ends.
    pub(crate) async fn hear(&mut self) -> String {
        self.lines
            .recv()
            .await
            .expect("the process ends with its input")
    }

    /// Sends a line to the test.
    pub(crate) fn say(&self, line: impl Display) {
        // One write, around the harness, which captures `println!`.
        let line = format!("{MARK}{line}\n");
        io::stdout()
            .write_all(line.as_bytes())
            .expect("the test listens");
    }
}

/// The test behind [`ENTRY`](crate::roles::ENTRY): in a peer it plays the role, in a usual run it checks the table.
pub(crate) fn play(roles: &[Role]) {
    let Ok(wanted) = env::var(ROLE) else {
        let names: BTreeSet<_> = roles.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), roles.len(), "two roles have one name");
        return;
    };
    let role = roles.iter().find(|(name, _)| *name == wanted);
    let (_, play) = role.unwrap_or_else(|| panic!("no role `{wanted}`"));
    let console = Console {
        lines: lines(io::stdin(), Some, || std::process::exit(0)),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(play(console));
}

/// Reads lines on a separate thread, so that a peer with a blocked runtime also notices the end of the test.
fn lines(
    source: impl Read + Send + 'static,
    pick: fn(String) -> Option<String>,
    at_end: fn(),
) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let lines = BufReader::new(source).lines().map_while(Result::ok);
        for line in lines.filter_map(pick) {
            // Continues to read without a receiver, so that the writer never blocks.
            let _ = sender.send(line);
        }
        at_end();
    });
    receiver
}

mod tests {
    use std::time::Duration;

    use crate::support::{Peer, eventually};

    #[tokio::test]
    async fn a_peer_answers_line_by_line() {
        let mut peer = Peer::start("echo");
        for line in ["lock a", "", "löck b"] {
            peer.tell(line);
            assert_eq!(peer.hear().await, line);
        }
    }

    #[tokio::test]
    async fn peers_are_processes_of_their_own() {
        let mut peers = [Peer::start("echo"), Peer::start("echo")];
        peers[0].process.kill9();
        peers[1].tell("alive");
        assert_eq!(peers[1].hear().await, "alive");
    }

    #[tokio::test]
    async fn a_paused_peer_answers_late() {
        let mut peer = Peer::start("echo");
        peer.tell("ready");
        peer.hear().await;
        peer.process.pause();
        peer.tell("late");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(peer.lines.is_empty());
        peer.process.resume();
        assert_eq!(peer.hear().await, "late");
    }

    #[tokio::test]
    async fn a_peer_ends_with_its_test() {
        let peer = Peer::start("echo");
        let Peer {
            mut process, stdin, ..
        } = peer;
        drop(stdin);
        eventually("it ends by itself", Duration::from_secs(30), async || {
            process.ended()
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "peer `unknown` has ended")]
    async fn an_unknown_role_ends_at_once() {
        Peer::start("unknown").hear().await;
    }
}

//! A PostgreSQL server of the tests' own.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// Makes a cluster in a temporary directory, serves it on a socket in there, and ends it with the directory when its input
/// ends: when the test binary is gone, however it goes. PostgreSQL refuses to run as root; then the user `postgres` does it.
/// Each line of its input kills the server, and starts it again.
const SCRIPT: &str = r#"
set -eu
programs=$1
directory=$(mktemp -d "${TMPDIR:-/tmp}/postgres-store.XXXXXX")
as=
if [ "$(id -u)" = 0 ]; then
  chown postgres "$directory"
  as="setpriv --reuid=postgres --regid=postgres --clear-groups"
fi
cd "$directory"
server=
end() {
  [ -z "$server" ] || kill -INT "$server" 2>/dev/null || true
  wait
  rm -rf "$directory"
}
trap end EXIT
# A signal without a trap of its own would end some shells without that of EXIT.
trap 'exit 1' HUP INT TERM
$as "$programs/initdb" --pgdata=data --username=tests --auth=trust --no-sync --no-instructions >initdb.log 2>&1 || {
  cat initdb.log >&2
  exit 1
}
echo "fsync = off" >>data/postgresql.conf
start() {
  $as "$programs/postgres" -D data -k "$directory" -c listen_addresses= -c max_connections=400 \
    -c shared_buffers=32MB -c max_wal_size=64MB -c deadlock_timeout=100ms >"$directory/log" 2>&1 &
  server=$!
  until $as "$programs/pg_isready" --quiet --host="$directory" --username=tests; do
    kill -0 $server 2>/dev/null || return 1
    sleep 0.1
  done
}
start || { cat log >&2; exit 1; }
echo "$directory"
while read -r order; do
  kill -KILL $server
  wait $server 2>/dev/null || true
  # It does not start while a process of the old one is there. Those end when they notice.
  tries=0
  until start; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat log >&2; exit 1; }
    sleep 0.1
  done
  echo "up again"
done
"#;

/// A server that listens on a socket only; it is never the system's own. It does not flush its files: no test cuts the power,
/// and what a killed process has written is there.
pub(crate) struct Server {
    directory: String,
    shell: Mutex<Shell>,
    /// Whether the database is there of which those of the tests are copies.
    template: OnceCell<()>,
    /// Databases of tests that are over. The next test drops them: several hundred would fill a small disk.
    over: Mutex<Vec<String>>,
}

/// The shell that runs the server.
struct Shell {
    /// Kept open: the server ends with it.
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// One for all tests of this binary. It ends with the binary.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    #[expect(
        clippy::zombie_processes,
        reason = "the shell ends with its input, and init reaps it"
    )]
    pub(crate) fn start() -> Self {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(programs())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut directory = String::new();
        let output = child.stdout.take().expect("stdout is piped");
        let mut output = BufReader::new(output);
        let read = output.read_line(&mut directory);
        read.expect("the shell says where the server is");
        let directory = directory.trim().to_owned();
        assert!(
            !directory.is_empty(),
            "PostgreSQL does not start: see above"
        );
        let input = child.stdin.take().expect("stdin is piped");
        Self {
            directory,
            shell: Mutex::new(Shell { input, output }),
            template: OnceCell::new(),
            over: Mutex::default(),
        }
    }

    /// Kills the server, all connections with it, and returns when it is up again. It blocks.
    #[allow(dead_code, reason = "not every test that starts one kills it")]
    pub(crate) fn kill(&self) {
        let mut shell = self.shell.lock().expect("no test has panicked here");
        shell.input.write_all(b"kill\n").expect("the shell reads");
        let mut line = String::new();
        shell
            .output
            .read_line(&mut line)
            .expect("the shell answers");
        assert_eq!(line.trim(), "up again");
    }

    /// A process that follows the server, as a standby does. It acknowledges nothing in time for a commit.
    #[allow(dead_code, reason = "not every test has one")]
    pub(crate) fn follower(&self) -> Follower {
        let mut program = Command::new(programs().join("pg_receivewal"));
        let folder = format!("{}/follower", self.directory);
        std::fs::create_dir(&folder).expect("it is empty");
        program.args(["-D", &folder, "-U", "tests", "-h", &self.directory]);
        Follower(program.spawn().expect("it is installed"))
    }

    /// An empty database with the schema `tower_lock`.
    pub(crate) async fn database(&self) -> Database<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.template
            .get_or_init(async || {
                self.run("postgres", "CREATE DATABASE template_locks").await;
                let schema = include_str!("../../src/schema.sql");
                self.run("template_locks", schema).await;
            })
            .await;
        let over = std::mem::take(&mut *self.over.lock().expect("no test has panicked here"));
        for name in over {
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            self.run("postgres", &drop).await;
        }
        let name = format!("locks_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let create = format!("CREATE DATABASE {name} TEMPLATE template_locks");
        self.run("postgres", &create).await;
        Database { server: self, name }
    }

    /// Runs statements on a connection of their own.
    async fn run(&self, database: &str, statements: &str) {
        let done = self.client(database).await.batch_execute(statements).await;
        done.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }

    fn config(&self, database: &str) -> String {
        format!("host={} user=tests dbname={database}", self.directory)
    }

    async fn client(&self, database: &str) -> Client {
        let connected = tokio_postgres::connect(&self.config(database), NoTls).await;
        let (client, connection) = connected.expect("it can be connected to");
        tokio::spawn(connection);
        client
    }
}

/// Ends with its test.
pub(crate) struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Where the programs are: `POSTGRES_BIN`, or the latest version that Debian has installed.
fn programs() -> PathBuf {
    if let Some(named) = std::env::var_os("POSTGRES_BIN") {
        return named.into();
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    let latest = versions.filter(|bin| bin.join("initdb").exists()).max();
    latest.expect(
        "these tests need PostgreSQL. Run: sudo apt-get install postgresql (or set POSTGRES_BIN to the folder of its programs)",
    )
}

/// A database of one test.
pub(crate) struct Database<'a> {
    server: &'a Server,
    name: String,
}

impl Database<'_> {
    /// Where a store finds it.
    pub(crate) fn config(&self) -> String {
        self.server.config(&self.name)
    }

    /// A connection that counts for no store.
    #[allow(dead_code, reason = "not every test asks the server itself")]
    pub(crate) async fn client(&self) -> Client {
        self.server.client(&self.name).await
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        let mut over = self.server.over.lock().expect("no test has panicked here");
        over.push(name);
    }
}

//! The settings of a server.

use super::*;

/// The settings of a [`RedisServer`].
#[derive(Debug, Clone)]
pub(crate) struct Builder {
    pub(super) binary: PathBuf,
    pub(super) config: Vec<(String, String)>,
    pub(super) password: Option<String>,
    pub(super) cluster: bool,
    pub(super) tls: Option<Tls>,
    pub(super) variables: Vec<(&'static str, PathBuf)>,
    pub(super) sentinel: bool,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            binary: env::var_os("REDIS_SERVER").map_or("redis-server".into(), PathBuf::from),
            config: Vec::new(),
            password: None,
            cluster: false,
            tls: None,
            variables: Vec::new(),
            sentinel: false,
        }
    }

    /// A line of `redis.conf`: `config("appendonly", "yes")`, `config("user", "alice on >secret ~* +@all")`.
    pub(crate) fn config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }

    /// `requirepass`. [`RedisServer::url`] then carries the password.
    pub(crate) fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.config("requirepass", password)
    }

    /// `cluster-enabled`, with a reserved bus port. The node has no slots yet.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        // A node without contact to another one does not know its own address, and would redirect clients to an empty
        // one.
        self.config("cluster-announce-ip", "127.0.0.1")
            .config("cluster-enabled", "yes")
    }

    /// A variable of its environment.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<PathBuf>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// `--sentinel`. It monitors no master yet.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Another binary than the default one.
    pub(crate) fn binary(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = binary.into();
        self
    }

    /// Starts the server, and waits until it answers.
    pub(crate) async fn start(self) -> RedisServer {
        let directory = TempDir::new().expect("a temporary directory");
        let (port, bus_port) = self.reserve_ports().expect("free ports");
        let tls_port = (self.tls.is_some() && !self.is_tls_alone())
            .then(|| ReservedPort::reserve().expect("a free port"));
        self.write_config(&directory, &port, tls_port.as_ref().unwrap_or(&port));
        let mut server = RedisServer {
            process: self.spawn(&directory),
            settings: self,
            port,
            bus_port,
            tls_port,
            directory,
        };
        server.until_it_answers().await;
        server
    }

    fn reserve_ports(&self) -> io::Result<(ReservedPort, Option<ReservedPort>)> {
        if !self.cluster {
            return Ok((ReservedPort::reserve()?, None));
        }
        let (port, bus) = ReservedPort::reserve_with(TO_THE_BUS)?;
        Ok((port, Some(bus)))
    }

    fn write_config(&self, directory: &TempDir, port: &ReservedPort, tls_port: &ReservedPort) {
        let path = directory.path().display();
        let plain_port = if self.is_tls_alone() {
            0
        } else {
            port.number()
        };
        let mut text = format!(
            "bind 127.0.0.1\nport {plain_port}\ndaemonize no\nsave \"\"\ndir \"{path}\"\nunixsocket \"{path}/redis.sock\"\n"
        );
        for (name, value) in &self.config {
            text.push_str(&format!("{name} {value}\n"));
        }
        if let Some(tls) = &self.tls {
            text.push_str(&format!("tls-port {}\n", tls_port.number()));
            for (name, file) in tls.write(directory.path()) {
                text.push_str(&format!("{name} \"{file}\"\n"));
            }
        }
        fs::write(directory.path().join("redis.conf"), text).expect("redis.conf is written");
    }

    pub(super) fn spawn(&self, directory: &TempDir) -> Process {
        let mut command = Command::new(&self.binary);
        command
            .arg(directory.path().join("redis.conf"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.sentinel {
            command.arg("--sentinel");
        }
        Process::spawn(&mut command).unwrap_or_else(|error| {
            panic!(
                "cannot run `{}`: {error}\n\
                 These tests need a real Redis server. `./scripts/test` installs it, and so does `apt-get install redis-server`; \
                 or set REDIS_SERVER to the path of one.",
                self.binary.display()
            )
        })
    }
}

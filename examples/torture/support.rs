//! Servers, processes and the proxy: those of the tests.

#[path = "../../tests/suite/support/authority.rs"]
mod authority;
#[path = "../../tests/suite/support/dump.rs"]
mod dump;
#[path = "../../tests/suite/support/eventually.rs"]
mod eventually;
#[path = "../../tests/suite/support/monitor.rs"]
mod monitor;
#[path = "../../tests/suite/support/port.rs"]
mod port;
#[path = "../../crates/postgres/tests/server/mod.rs"]
mod postgres_server;
#[path = "../../tests/suite/support/process.rs"]
mod process;
#[path = "../../tests/suite/support/proxy.rs"]
mod proxy;
#[path = "../../tests/suite/support/redis_server.rs"]
mod redis_server;

pub(crate) use authority::{Authority, Credentials};
pub(crate) use dump::{Dump, Entry, Stored};
pub(crate) use eventually::eventually;
pub(crate) use monitor::Monitor;
pub(crate) use port::ReservedPort;
pub(crate) use postgres_server::Server as PostgresServer;
pub(crate) use process::Process;
pub(crate) use proxy::{Ending, Proxy};
pub(crate) use redis_server::RedisServer;

//! The test environment: real servers, a proxy that injects faults, peer processes, and waiting without sleeping.
//!
//! The test that uses a server or process starts it. It listens on loopback only, and ends when its value is dropped.
//! None of this works under tokio's paused clock, which real processes do not follow.

mod authority;
mod browser;
mod demo_server;
mod dump;
mod eventually;
mod example;
mod flaw;
mod flawed;
mod gate;
mod limited_store;
mod log;
mod monitor;
mod peer;
mod port;
#[path = "../../crates/postgres/tests/server/mod.rs"]
mod postgres_server;
mod process;
pub(crate) mod project;
mod proxy;
mod redis_cluster;
mod redis_sentinels;
mod redis_server;
mod replicated;
mod site;

pub(crate) use authority::{Authority, Credentials};
pub(crate) use browser::Browser;
pub(crate) use demo_server::DemoServer;
pub(crate) use dump::{Dump, Entry, Stored};
pub(crate) use eventually::eventually;
pub(crate) use example::{binary, example};
pub(crate) use flaw::Flaw;
pub(crate) use flawed::{Flawed, is_in_order};
pub(crate) use limited_store::LimitedStore;
pub(crate) use log::{Log, ask_all_subscribers};
pub(crate) use monitor::Monitor;
pub(crate) use peer::{Console, Peer, Role, play};
pub(crate) use port::ReservedPort;
pub(crate) use postgres_server::Server as PostgresServer;
pub(crate) use process::Process;
pub(crate) use proxy::{Ending, Proxy};
pub(crate) use redis_cluster::RedisCluster;
pub(crate) use redis_sentinels::RedisSentinels;
pub(crate) use redis_server::{Builder, RedisServer};
pub(crate) use replicated::Replicated;
pub(crate) use site::Site;

//! A live page for operators: locks, their holders and their waiting requests.
//!
//! # Put it behind your authentication first
//!
//! The page shows the names of locks, which may contain input of clients. With
//! [`allow_force_unlock`](Console::allow_force_unlock) it also breaks locks. It has **no authentication of its own**: it serves
//! every request that reaches it. Nest it behind the application's authentication for operators, or serve it on an address that
//! only operators reach.
//!
//! It answers requests whose `Host` is an IP address, `localhost`, or one of [`Console::hosts`], and refuses all others with 421, so
//! that a page of another site cannot read it by pointing its own name at your address (DNS rebinding). Name the host under which
//! your operators reach it.
//!
//! `nest_service` of axum serves the page at `/_locks` and at `/_locks/`; `nest` answers the second with 404.
//! Layers around the nested page see no `MatchedPath` for its own routes.
//!
//! ```
//! use axum::Router;
//! use tower_distributed_lock::{LockClient, MemoryStore};
//! use tower_distributed_lock_console as console;
//!
//! let locks = LockClient::new(MemoryStore::new());
//! let operators: Router = Router::new().nest_service("/_locks", console::router(&locks));
//! // .layer(…): the application's authentication, outside of the page.
//! ```
//!
//! Make the router when the program starts, on its runtime: from then on it counts losses, refusals and waits.
//!
//! # What it shows
//!
//! * Every key that requests of this process hold or wait for: mode, holder, route, age, rest of the lease, waiters, fencing token. The server sorts, filters and pages: ten thousand keys stay usable.
//! * One key in full: each hold of this process, each request that waits here, in order, and the state in the store, also where
//!   only a Java service holds the lock.
//! * The latest losses and refusals with their cause, the keys that requests have waited for most in the last minutes, and how long
//!   requests waited that could not have their lock at once, by route and mode.
//! * The store: its [audit](tower_distributed_lock::audit::Audit), and how fast it answered.
//!
//! A process sees itself and the store, and no other process. [`peers`](Console::peers) links the pages of the others.
//!
//! The page is live through server-sent events. A stream ends after half a minute, even if it is not read, and the page opens the
//! next one, so that a server that stops gracefully does not wait for longer than that; the end of the client
//! ([`LockClient::shutdown`]) ends streams within a second. At most 32 streams are open at a time.
//!
//! # Breaking a lock
//!
//! It is off, unless [`Console::allow_force_unlock`] is called. The user must type the key's name, and the request has the ids of
//! the holders that the page has shown: if another one holds the lock by then, nothing is broken. That is a look before the break, and
//! not one step with it: a holder that comes in the milliseconds between the two is ended too. The request is a `POST` with a JSON body
//! that a browser sends from the page itself only: one with another `Sec-Fetch-Site` than `same-origin`, or with neither that nor an
//! `Origin` of the same host, is refused (one log line a minute). A break is logged as a warning with the address of the caller (from
//! [`ConnectInfo`](axum::extract::ConnectInfo), where the server provides it), and the answer has the state before.
//!
//! The page sets a `Content-Security-Policy` without inline code and without other origins. Names of locks are text, never
//! markup; control characters are shown as escapes.
//!
//! # Cost
//!
//! The keys, holds and queues are read from [`LockClient::snapshot`] when a page asks, one page at a time, and nothing is kept for
//! that. The past is counted from [`LockClient::events`], in bounded memory: 256 events, the histograms of 256 routes and modes, 512
//! contended keys. A request that gets its lock at once costs nothing.
//!
//! # JSON
//!
//! Everything on the page can be read as JSON under `api/`. The fields are stable: a minor release adds some, and removes none.
//! [The guide](https://github.com/tower-distributed-lock/tower-distributed-lock/blob/main/docs/guide/console.md) has them.

use std::sync::Arc;

use axum::Router;

use tower_distributed_lock::client::LockClient;

mod assets;
mod break_lock;
mod contended;
mod durations;
mod history;
mod holders;
mod host;
mod key;
mod keys;
mod live;
mod millis;
mod problem;
mod process;
mod recent;
mod routes;
mod row;
mod same_origin;
mod shared;
mod store;
mod survey;
mod throttle;

use process::Peer;
use shared::Shared;

/// The page and its JSON for the locks of one client, with default settings: locks cannot be broken. Nest it where the
/// operators' authentication is: see the [`crate`].
///
/// ```
/// # use tower_distributed_lock::{LockClient, MemoryStore};
/// # use tower_distributed_lock_console as console;
/// # let locks = LockClient::new(MemoryStore::new());
/// let app: axum::Router = axum::Router::new().nest_service("/_locks", console::router(&locks));
/// ```
pub fn router(locks: &LockClient) -> Router {
    Console::new(locks).router()
}

/// The settings of a page.
///
/// ```
/// use tower_distributed_lock_console::Console;
/// # use tower_distributed_lock::{LockClient, MemoryStore};
/// # let locks = LockClient::new(MemoryStore::new());
/// let page = Console::new(&locks)
///     .process("api-1")
///     .peers([("api-2", "https://api-2.internal/_locks")])
///     .allow_force_unlock()
///     .router();
/// # let _: axum::Router = page;
/// ```
#[derive(Debug, Clone)]
#[must_use = "a console does nothing until its router is served"]
pub struct Console {
    locks: LockClient,
    process: Option<String>,
    peers: Vec<Peer>,
    hosts: Vec<String>,
    may_break: bool,
}

impl Console {
    /// A console for the locks of `locks`.
    pub fn new(locks: &LockClient) -> Self {
        Self {
            locks: locks.clone(),
            process: None,
            peers: Vec::new(),
            hosts: Vec::new(),
            may_break: false,
        }
    }

    /// Sets the name of this process on the page (default: host name and process id).
    pub fn process(mut self, name: impl Into<String>) -> Self {
        self.process = Some(name.into());
        self
    }

    /// The pages of other processes, as names and addresses. The page links them.
    ///
    /// # Panics
    ///
    /// If an address does not begin with `https://`, `http://` or `/`.
    pub fn peers<N, A>(mut self, peers: impl IntoIterator<Item = (N, A)>) -> Self
    where
        N: Into<String>,
        A: Into<String>,
    {
        let peers = peers.into_iter();
        let peers = peers.map(|(name, address)| Peer::new(name.into(), address.into()));
        self.peers.extend(peers);
        self
    }

    /// The names under which operators reach the page, such as `ops.example.com`, without a port. IP addresses and `localhost` need
    /// not be named. Requests to other names are refused with 421: see the [`crate`].
    pub fn hosts<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.hosts.extend(names.into_iter().map(Into::into));
        self
    }

    /// Lets the page break locks of any holder. The holders learn of the loss at their next renewal or release.
    ///
    /// Every user who may see the page may then break locks.
    pub fn allow_force_unlock(mut self) -> Self {
        self.may_break = true;
        self
    }

    /// The routes: the page at `/`, its files beside it, and its JSON under `/api`.
    pub fn router(self) -> Router {
        routes::router(Arc::new(Shared::new(self)))
    }
}

impl<S: Clone + Send + Sync + 'static> From<Console> for Router<S> {
    /// The same for a router with a state.
    fn from(console: Console) -> Self {
        console.router().with_state(())
    }
}

/// The example in the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

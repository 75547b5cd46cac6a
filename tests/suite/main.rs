//! Every integration test, in one binary: it links once, and its tests share the servers, proxies and peers of [`support`].

mod roles;
mod server;
mod support;

//! Every integration test, in one binary: it links once, and its tests share the servers, proxies and peers of [`support`].

// The attribute makes clippy accept `unwrap`, because only tests are compiled here.
#![cfg(test)]

mod admin;
mod architecture;
mod background;
mod client;
mod cluster;
mod conformance;
mod console;
mod differential;
mod documents;
mod faults;
mod golden;
mod idempotency;
mod interop;
mod layer;
mod lockctl;
mod museum;
mod operations;
mod quorum;
mod redis_replicas;
mod redis_sentinel;
mod redis_store;
mod roles;
mod server;
mod simulation;
mod support;
mod testing;
mod torture;

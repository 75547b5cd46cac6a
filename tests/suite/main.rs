//! Every integration test, in one binary: it links once, and its tests share the servers, proxies and peers of [`support`].

#[cfg(test)] // Its cases are no test functions themselves.
mod conformance;
mod roles;
mod support;

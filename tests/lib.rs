//! The tests of `tower-distributed-lock`: see `suite/main.rs`.

//! The examples and binaries, as cargo has built them.

use std::env;
use std::path::PathBuf;

/// Next to this binary: `target/<profile>/deps/suite-…` and `target/<profile>/examples/<name>`.
pub(crate) fn example(name: &str) -> PathBuf {
    profile().join("examples").join(name)
}

/// A binary of the crate: `target/<profile>/<name>`.
pub(crate) fn binary(name: &str) -> PathBuf {
    profile().join(name)
}

fn profile() -> PathBuf {
    let suite = env::current_exe().expect("the test binary has a path");
    let profile = suite
        .ancestors()
        .nth(2)
        .expect("it lies in target/<profile>/deps");
    profile.to_owned()
}

//! Builds and runs the benches, which are a workspace of their own in `harness`; see README.md.
//!
//! `cargo bench` runs all of them, `cargo bench -- --quick` in a hurry, `cargo bench -- hot fair` those with such names.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/harness/Cargo.toml");
    let own = env::current_exe().expect("a program has a path");
    // …/target/release/deps/all-…
    let target = own.ancestors().nth(3).expect("cargo has built this");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target.join("benches"))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let benches = target.join("benches/release/bench");
    match Command::new(&benches).args(env::args_os().skip(1)).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{} cannot be run: {error}", benches.display());
            ExitCode::FAILURE
        }
    }
}

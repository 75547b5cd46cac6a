//! Where a process may die, or be paused, in a test.

use std::path::PathBuf;
use std::time::Duration;

/// Ends the process at the step that `KILL_AT` names. At that of `PAUSE_AT`, waits until the file `RESUME` is there.
pub(crate) fn reached(step: &str) {
    if std::env::var("KILL_AT").is_ok_and(|at| at == step) {
        std::process::abort();
    }
    if std::env::var("PAUSE_AT").is_ok_and(|at| at == step) {
        println!("paused");
        let resume = PathBuf::from(std::env::var_os("RESUME").expect("a file"));
        while !resume.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

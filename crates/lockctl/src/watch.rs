//! `lockctl watch`: changes of a lock.

use std::time::SystemTime;

use serde::Serialize;
use tokio::time::sleep;
use tower_distributed_lock::{Inspection, LockEntry, LockKey};

use crate::cli::WatchArgs;
use crate::connection::Connection;
use crate::exit::{Failure, sentence};
use crate::messages::warn;
use crate::text::plain;
use crate::{json, print_to_reader};

/// What a look has found, and when: one line of `--json`.
#[derive(Serialize)]
struct Look {
    at: String,
    #[serde(flatten)]
    lock: LockEntry,
}

/// Prints the state of the lock, and then each state that differs, until a signal ends it or the reader has gone.
///
/// A change that is undone between two looks is not seen. If the store fails after the first look, it is asked again.
pub(crate) async fn watch(args: &WatchArgs, connection: &Connection) -> Result<u8, Failure> {
    let admin = connection.admin().await?;
    let mut found = admin.inspect(&args.key.key).await?;
    let mut seen = None;
    let mut failing = None;
    loop {
        let state = state(&found);
        if seen.as_ref() != Some(&state) {
            if !tell(args, &state, found)? {
                return Ok(0);
            }
            seen = Some(state);
        }
        found = loop {
            sleep(args.interval).await;
            match admin.inspect(&args.key.key).await {
                Ok(found) => break found,
                Err(error) => {
                    let error = sentence(&error);
                    if failing.as_ref() != Some(&error) {
                        warn(&error);
                    }
                    failing = Some(error);
                }
            }
        };
        failing = None;
    }
}

/// Prints a line. Returns whether it has a reader.
fn tell(args: &WatchArgs, state: &str, found: Inspection) -> Result<bool, Failure> {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let line = match args.key.output.json {
        true => json(&Look {
            at,
            lock: LockEntry::new(LockKey::new(&*args.key.key), found),
        }),
        false => format!("{at}  {state}\n"),
    };
    print_to_reader(line.as_bytes())
}

/// Holders and waiting clients, without the values that change all the time.
fn state(found: &Inspection) -> String {
    let mut holders: Vec<_> = found
        .holders
        .iter()
        .map(|holder| {
            let times = match holder.count {
                1 => String::new(),
                count => format!(", entered {count} times"),
            };
            format!("{} ({}{times})", plain(&holder.id), holder.mode.as_str())
        })
        .collect();
    holders.sort();
    let mut state = match holders.is_empty() {
        true => "free".to_owned(),
        false => format!("held by {}", holders.join(", ")),
    };
    if !found.waiters.is_empty() {
        let waiters: Vec<_> = found.waiters.iter().map(|waiter| plain(waiter)).collect();
        state += &format!("; waiting: {}", waiters.join(", "));
    }
    state
}

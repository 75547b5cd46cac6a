//! `lockctl watch`: changes of a lock.

use std::time::SystemTime;

use serde::Serialize;
use tokio::time::sleep;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::store::{Holder, Inspection, LockEntry};

use crate::cli::WatchArgs;
use crate::connection::Connection;
use crate::exit::{Failure, with_causes};
use crate::messages::warn;
use crate::show::others;
use crate::text::plain;
use crate::{json, print_to_reader};

/// What a look has found, and when: one line of `--json`.
#[derive(Serialize)]
struct Look {
    at: String,
    #[serde(flatten)]
    lock: LockEntry,
}

/// Prints the state of the lock, and then each state that differs, until a signal ends it. A reader that has gone ends it at the next
/// change, because only a write shows that.
///
/// A change that is undone between two looks is not seen. If the store fails after the first look, it is asked again.
pub(crate) async fn watch(args: &WatchArgs, connection: &Connection) -> Result<u8, Failure> {
    let admin = connection.admin().await?;
    let mut found = admin.inspect(&args.key.key).await?;
    let mut seen = None;
    let mut failing = None;
    loop {
        let parties = parties(&found);
        if seen.as_ref() != Some(&parties) {
            if !print_line(args, found)? {
                return Ok(0);
            }
            seen = Some(parties);
        }
        found = loop {
            sleep(args.interval).await;
            match admin.inspect(&args.key.key).await {
                Ok(found) => break found,
                Err(error) => {
                    let error = with_causes(&error);
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
fn print_line(args: &WatchArgs, found: Inspection) -> Result<bool, Failure> {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let line = match args.key.output.json {
        true => json(&Look {
            at,
            lock: LockEntry::new(LockKey::new(&*args.key.key), found),
        }),
        false => format!("{at}  {}\n", state(&found)),
    };
    print_to_reader(line.as_bytes())
}

/// Holders and waiting clients, without the values that change all the time, and in an order that does not: a change of the order
/// alone is no change. Holders do not count where only some are shown, which are others at each look.
fn parties(found: &Inspection) -> (Option<Vec<String>>, Vec<String>) {
    let mut waiters = found.waiters.clone();
    waiters.sort();
    (found.has_all_holders().then(|| holders(found)), waiters)
}

fn holders(found: &Inspection) -> Vec<String> {
    let mut holders: Vec<_> = found.holders.iter().map(holder).collect();
    holders.sort();
    holders
}

fn holder(holder: &Holder) -> String {
    let times = match holder.count {
        1 => String::new(),
        count => format!(", entered {count} times"),
    };
    format!("{} ({}{times})", plain(&holder.id), holder.mode.as_str())
}

fn state(found: &Inspection) -> String {
    let mut state = match found.is_held() {
        true => format!("held by {}{}", holders(found).join(", "), others(found)),
        false => "free".to_owned(),
    };
    if !found.waiters.is_empty() {
        let waiters: Vec<_> = found.waiters.iter().map(|waiter| plain(waiter)).collect();
        state += &format!("; waiting: {}", waiters.join(", "));
    }
    state
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower_distributed_lock::LockMode;

    use super::*;

    #[test]
    fn another_order_of_the_same_clients_is_no_change() {
        let found = |ids: [&str; 2], waiters: [&str; 2]| {
            let holder = |id: &str| Holder::new(id, LockMode::Read, Duration::from_secs(1));
            let (holders, waiters) = (ids.map(holder), waiters.map(str::to_owned));
            parties(&Inspection::new(holders.to_vec(), waiters.to_vec()))
        };
        assert_eq!(found(["a", "b"], ["c", "d"]), found(["b", "a"], ["d", "c"]));
        assert_ne!(found(["a", "b"], ["c", "d"]), found(["a", "b"], ["c", "e"]));
    }

    #[test]
    fn some_of_many_readers_are_no_change_and_the_one_writer_is() {
        let found = |id: &str, mode| {
            let holder = Holder::new(id, mode, Duration::from_secs(1));
            let mut found = Inspection::new(vec![holder], Vec::new());
            found.truncated = true;
            parties(&found)
        };
        assert_eq!(found("a", LockMode::Read), found("b", LockMode::Read));
        assert_ne!(found("a", LockMode::Read), parties(&Inspection::default()));
        assert_ne!(found("a", LockMode::Write), found("b", LockMode::Write));
    }
}

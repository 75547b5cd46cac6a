//! `lockctl break`: ends the holds on a key by force.

use std::io;

use serde::Serialize;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::admin::LockEntry;

use crate::cli::BreakArgs;
use crate::connection::Connection;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::show::{described, json};
use crate::text::plain;

/// What `--json` prints.
#[derive(Serialize)]
struct BreakReport {
    broken: bool,
    /// The state before.
    #[serde(flatten)]
    found: LockEntry,
}

pub(crate) async fn break_lock(args: &BreakArgs, connection: &Connection) -> Result<u8, Failure> {
    let (key, is_json) = (&*args.key.key, args.key.output.json);
    let admin = connection.admin().await?;
    let found = admin.inspect(key).await?;
    if found.is_held() && !args.yes {
        eprintln!("{}", described(key, &found));
        confirm(key)?;
    }
    let broken = admin.force_unlock(key).await?;
    let text = match (is_json, broken) {
        (true, _) => json(&BreakReport {
            broken,
            found: LockEntry::new(LockKey::new(key), found),
        }),
        (false, true) => format!(
            "{} is broken; it was held by {}\n",
            plain(key),
            names(&found)
        ),
        (false, false) => format!("{} is free\n", plain(key)),
    };
    let code = if broken { 0 } else { Exit::Nothing as u8 };
    print(text.as_bytes()).map(|_| code)
}

fn names(found: &tower_distributed_lock::Inspection) -> String {
    let names: Vec<_> = found
        .holders
        .iter()
        .map(|holder| plain(&holder.id))
        .collect();
    match names.is_empty() {
        true => "a holder that came just now".to_owned(),
        false => names.join(", "),
    }
}

/// Asks the user to type the name.
fn confirm(key: &str) -> Result<(), Failure> {
    eprint!(
        "Its holders go on working, and another may begin. Type the name of the lock to break it: "
    );
    let mut typed = String::new();
    let read = io::stdin().read_line(&mut typed);
    match read.is_ok() && typed.trim_end_matches(['\r', '\n']) == key {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::Nothing,
            "that is not its name: nothing was broken",
        )),
    }
}

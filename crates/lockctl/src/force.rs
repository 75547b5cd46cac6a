//! `lockctl break`: ends the holds on a key by force.

use std::io;

use serde::Serialize;
use tokio::task::spawn_blocking;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::store::{Holder, Inspection, LockEntry};

use crate::cli::{BreakArgs, KeyArgs};
use crate::connection::Connection;
use crate::exit::{Exit, Failure};
use crate::messages::write_to_stderr;
use crate::show::{described, others};
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
    let KeyArgs { key, output } = &args.key;
    let admin = connection.admin().await?;
    let mut found = admin.inspect(&**key).await?;
    if found.is_held() && !args.yes {
        write_to_stderr(format_args!("{}\n", described(key, &found)));
        confirm(key).await?;
        let now = admin.inspect(&**key).await?;
        only_shown(&found, &now)?;
        found = now;
    }
    // A holder that has come since a look at a free lock is one that the user has not seen.
    let is_meant = found.is_held() || args.yes;
    let broken = is_meant && admin.force_unlock(&**key).await?;
    let found = LockEntry::new(LockKey::new(&**key), found);
    let report = BreakReport { broken, found };
    let text = || match broken {
        true => {
            let names = names(&report.found.inspection);
            format!("{} is broken; it was held by {names}\n", plain(key))
        }
        false => format!("{} is free\n", plain(key)),
    };
    let code = if broken { 0 } else { Exit::Nothing as u8 };
    output.print(&report, text).map(|_| code)
}

fn names(found: &Inspection) -> String {
    let names: Vec<_> = found
        .holders
        .iter()
        .map(|holder| plain(&holder.id))
        .collect();
    match names.is_empty() {
        true => "a holder that came just now".to_owned(),
        false => names.join(", ") + others(found),
    }
}

/// Asserts that `now` has no holder that was not shown. Of very many holders only some are known, so nothing can be said about them.
fn only_shown(shown: &Inspection, now: &Inspection) -> Result<(), Failure> {
    let is_shown = |other: &Holder| shown.holders.iter().any(|holder| holder.id == other.id);
    let is_known = shown.has_all_holders() && now.has_all_holders();
    match now
        .holders
        .iter()
        .find(|holder| is_known && !is_shown(holder))
    {
        None => Ok(()),
        Some(other) => {
            let id = plain(&other.id);
            let why = format!("the lock has another holder by now, {id}: nothing was broken");
            Err(Failure::new(Exit::Nothing, why))
        }
    }
}

/// Asks the user to type the name.
async fn confirm(key: &str) -> Result<(), Failure> {
    write_to_stderr(
        "Its holders go on working, and another may begin. Type the name of the lock to break it: ",
    );
    // On another thread, so that a connection that the store closes meanwhile is replaced.
    let typed = spawn_blocking(|| io::stdin().lines().next()).await;
    match typed {
        Ok(Some(Ok(typed))) if typed == key => Ok(()),
        _ => Err(Failure::new(
            Exit::Nothing,
            "that is not its name: nothing was broken",
        )),
    }
}

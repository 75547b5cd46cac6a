//! `lockctl show`: who holds a lock, and who waits for it.

use tower_distributed_lock::LockKey;
use tower_distributed_lock::store::{Holder, Inspection, LockEntry};

use crate::cli::KeyArgs;
use crate::connection::Connection;
use crate::exit::{Exit, Failure};
use crate::text::{left, plain, table};

pub(crate) async fn show(args: &KeyArgs, connection: &Connection) -> Result<u8, Failure> {
    let admin = connection.admin().await?;
    let found = admin.inspect(&args.key).await?;
    let code = match found.is_held() {
        true => 0,
        false => Exit::Nothing as u8,
    };
    let entry = LockEntry::new(LockKey::new(&*args.key), found);
    let text = || described(&args.key, &entry.inspection);
    args.output.print(&entry, text).map(|_| code)
}

/// The state of a key, as text.
pub(crate) fn described(key: &str, found: &Inspection) -> String {
    let key = plain(key);
    let mut text = match (found.is_held(), found.limit) {
        (true, None) => format!("{key} is held:\n\n{}", holders(&found.holders)),
        (true, Some(limit)) => format!(
            "{key} is held, {}{} of {limit} permits:\n\n{}",
            at_least(found),
            found.holders.len(),
            holders(&found.holders)
        ),
        (false, None) => format!("{key} is free\n"),
        (false, Some(limit)) => format!("{key} is free, with {limit} permits\n"),
    };
    if !found.waiters.is_empty() {
        text += "\nwaiting, as far as the store knows:\n\n";
        for waiter in &found.waiters {
            text += &format!("{}\n", plain(waiter));
        }
    }
    if found.truncated {
        text += "\nthere are more\n";
    }
    text
}

/// What stands before the number of holders that are shown.
pub(crate) fn at_least(found: &Inspection) -> &'static str {
    match found.has_all_holders() {
        true => "",
        false => "at least ",
    }
}

/// What stands after the holders that are shown.
pub(crate) fn others(found: &Inspection) -> &'static str {
    match found.has_all_holders() {
        true => "",
        false => " and others",
    }
}

fn holders(holders: &[Holder]) -> String {
    let head = ["HOLDER", "CLIENT", "MODE", "ENTERED", "LEASE LEFT"];
    let rows = holders.iter().map(|holder| {
        vec![
            plain(&holder.id),
            client(holder),
            holder.mode.as_str().to_owned(),
            holder.count.to_string(),
            left(holder.remaining),
        ]
    });
    table(&head, rows)
}

/// What a holder is a client of; its process, if that has announced itself.
pub(crate) fn client(holder: &Holder) -> String {
    match &holder.process {
        Some(process) => {
            let route = holder.route.iter().map(|route| format!(", {route}"));
            plain(&format!(
                "{}, process {} on {}{}",
                process.label,
                process.pid,
                process.host,
                route.collect::<String>()
            ))
        }
        None if holder.is_ours() => "this crate".to_owned(),
        None => "Redisson".to_owned(),
    }
}

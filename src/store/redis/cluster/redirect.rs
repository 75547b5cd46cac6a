//! Redirections: the errors with which a server of a Cluster refuses a command.

use redis::ServerError;

use super::slots::Address;

/// Why a server did not execute a command, and where or when to send it again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another server has the slot.
    Moved(Address),
    /// Another server may have the key: the slot is being moved to it.
    Ask(Address),
    /// Some of the keys have moved and some have not: the slot is being moved.
    Later,
    /// The server is cut off, or is not a master any more.
    Elsewhere,
}

impl Redirect {
    /// Reads the error of the server at `teller`; `None` if it is not a redirection.
    pub(super) fn read(error: &ServerError, teller: &Address) -> Option<Self> {
        let address = || Address::read(error.details()?.split(' ').nth(1)?, teller);
        match error.code() {
            "MOVED" => address().map(Self::Moved),
            "ASK" => address().map(Self::Ask),
            "TRYAGAIN" => Some(Self::Later),
            "CLUSTERDOWN" | "READONLY" | "MASTERDOWN" => Some(Self::Elsewhere),
            _ => None,
        }
    }
}

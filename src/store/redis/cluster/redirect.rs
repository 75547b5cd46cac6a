//! What a server says instead of doing what it was asked to.

use redis::ServerError;

use super::slots::Address;

/// Why a command was not executed, and where or when it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another server has the slot, for good.
    Moved(Address),
    /// Another server may have the key: the slot is on its way there.
    Ask(Address),
    /// Some of the keys are here and some are not: the slot is on its way.
    Later,
    /// The server is cut off, or no master any more.
    Elsewhere,
}

impl Redirect {
    /// Reads the error of the server at `teller`; `None` if it has another meaning.
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

//! What a client does in the background: renewals, and the clean-up of what was dropped.

mod cleanup;
mod release;
mod shutdown;
mod watchdog;
mod wired;

/// The uses of a connection.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const RENEWALS: &str = "renewals";
pub(crate) const WAKE_UPS: &str = "wake-ups";

/// The uses of a connection.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const RENEWALS: &str = "renewals";
pub(crate) const WAKE_UPS: &str = "wake-ups";
pub(super) const USES: [&str; 3] = [COMMANDS, RENEWALS, WAKE_UPS];

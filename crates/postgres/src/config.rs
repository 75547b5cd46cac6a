//! How a store connects.

use std::time::Duration;

use tokio_postgres::{Config, Error};

/// How long a question may take, and how long a connection may take to come about.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// What `text` says, and what the store chooses where it says nothing.
pub(crate) fn config(text: &str) -> Result<Config, Error> {
    let mut config: Config = text.parse()?;
    let theirs = config.get_options().unwrap_or_default();
    // The last one of a name counts. A question ends before its caller gives up: otherwise the server's processes would pile up
    // behind a key. So does its wait for a key, even if the user lets statements take longer. Each step of a function must see what
    // was committed before the function got the key.
    let options = format!(
        "-c statement_timeout=4s -c lock_timeout=4s {theirs} -c default_transaction_isolation=read\\ committed"
    );
    config.options(options);
    if config.get_application_name().is_none() {
        config.application_name("tower_lock");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(LIMIT);
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(LIMIT);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(Duration::from_secs(1));
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(5);
    }
    Ok(config)
}

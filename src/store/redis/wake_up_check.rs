//! Checks that messages reach the connection on which the store subscribes.

use std::error::Error;
use std::sync::Arc;

use tokio::time::timeout;

use super::connection::SharedConnection;
use super::failure::{self, unreachable};
use super::names::Names;
use super::rights::SCRATCH;
use super::subscriptions::Subscriptions;
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::telemetry;

/// Warns if a message that is published on `connection` does not reach `subscriptions`: the target of a pool's connections is
/// unknown, so the address for subscriptions may be that of another server.
pub(super) async fn warn(connection: &Arc<SharedConnection>, subscriptions: &Arc<Subscriptions>) {
    if let Err(error) = check(connection, subscriptions).await {
        telemetry::store::failed(telemetry::store::WAKE_UPS);
        tracing::warn!(
            %error,
            reason = error.source().map(tracing::field::display),
            "no wake-up arrives at the address for subscriptions of `RedisStore::from_pool`: waiters find out by asking again",
        );
    }
}

async fn check(
    connection: &Arc<SharedConnection>,
    subscriptions: &Arc<Subscriptions>,
) -> Result<(), StoreError> {
    // The documented rights allow this channel, and no lock has its name.
    let scratch = LockKey::new(SCRATCH);
    let channel = Names::of(&scratch).channel().to_string();
    let mut heard = subscriptions.listen(channel.clone()).await?;
    let publish = redis::cmd("PUBLISH").arg(&channel).arg("0").to_owned();
    failure::accepted(connection.query(&publish).await?)?;
    match timeout(subscriptions.context.timeouts().response, heard.wait()).await {
        Ok(true) => Ok(()),
        _ => Err(unreachable(
            "a message that the pool's server was given does not arrive: it is another server",
        )),
    }
}

//! Checks that messages reach the connection on which the store subscribes.

use std::error::Error;
use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::timeout;

use super::connection::SharedConnection;
use super::endpoint::Endpoint;
use super::failure::{self, unreachable};
use super::names::Names;
use super::rights::SCRATCH;
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::telemetry;

/// Warns if a message that is published on `connection` does not arrive at `endpoint`: the target of a pool's connections is
/// unknown, so the address for subscriptions may be that of another server.
pub(super) async fn warn(connection: &Arc<SharedConnection>, endpoint: &Endpoint) {
    if let Err(error) = check(connection, endpoint).await {
        telemetry::store::failed(telemetry::store::WAKE_UPS);
        tracing::warn!(
            %error,
            reason = error.source().map(tracing::field::display),
            "no wake-up arrives at the address for subscriptions of `RedisStore::from_pool`: waiters find out by asking again",
        );
    }
}

async fn check(connection: &Arc<SharedConnection>, endpoint: &Endpoint) -> Result<(), StoreError> {
    let checking = async {
        let (mut sink, mut messages) = endpoint.open_pubsub().await?.split();
        let scratch = LockKey::new(SCRATCH);
        // The documented rights allow this channel, and no lock has its name.
        let channel = Names::of(&scratch).channel().to_string();
        let subscribed = sink.subscribe(&channel).await;
        subscribed.map_err(failure::no_connection)?;
        let text = format!("{:032x}", fastrand::u128(..));
        let publish = redis::cmd("PUBLISH").arg(&channel).arg(&text).to_owned();
        failure::accepted(connection.query(&publish).await?)?;
        while let Some(message) = messages.next().await {
            if message.get_payload_bytes() == text.as_bytes() {
                return Ok(());
            }
        }
        Err(unheard())
    };
    let limit = endpoint.timeouts.connect + endpoint.timeouts.response;
    timeout(limit, checking)
        .await
        .unwrap_or_else(|_| Err(unheard()))
}

fn unheard() -> StoreError {
    unreachable("a message that the pool's server was given does not arrive: it is another server")
}

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

/// The longest time (ms) that a request may ask for.
const LONGEST: u64 = 60_000;

/// `?hold_ms=…`: how long a handler takes between its read and its write.
#[derive(Deserialize)]
pub(crate) struct Hold {
    #[serde(default, deserialize_with = "bounded")]
    hold_ms: u64,
}

impl Hold {
    pub(crate) async fn pass(&self) {
        tokio::time::sleep(Duration::from_millis(self.hold_ms)).await;
    }
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        ms if ms <= LONGEST => Ok(ms),
        ms => Err(D::Error::custom(format!("hold_ms={ms}: {LONGEST} at most"))),
    }
}

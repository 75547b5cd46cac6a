use std::time::Duration;

use serde::Deserialize;

/// `?hold_ms=…`: how long a handler takes between its read and its write.
#[derive(Deserialize)]
pub(crate) struct Hold {
    #[serde(default)]
    hold_ms: u64,
}

impl Hold {
    pub(crate) async fn pass(&self) {
        tokio::time::sleep(Duration::from_millis(self.hold_ms)).await;
    }
}

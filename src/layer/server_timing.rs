//! What a lock cost a response, for the developer tools of a browser.

use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderValue, Response};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Adds the wait for the lock and, if it is over, the hold to `Server-Timing` (W3C), in milliseconds.
pub(super) fn add<B>(response: &mut Response<B>, waited: Duration, held: Option<Duration>) {
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let mut timing = format!("lock-wait;dur={:.3}", millis(waited));
    if let Some(held) = held {
        timing.push_str(&format!(", lock-hold;dur={:.3}", millis(held)));
    }
    let timing = HeaderValue::try_from(timing).expect("digits and letters");
    response.headers_mut().append(SERVER_TIMING, timing);
}

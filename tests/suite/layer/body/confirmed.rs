//! What confirms the end of a body, for each [`Confirm`] and for reads.

use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use tower_distributed_lock::{Confirm, Lease, OnLost};

use super::super::{request, send, settle};
use super::{
    Body, Response, answering, at_body_end, fixed, measured, put, streaming, with_trailers,
};

const BODIES: [fn() -> Response; 4] = [fixed, streaming, measured, with_trailers];

/// Reads the body to its end without waiting. Returns whether it ends well; `None`: its end is withheld.
fn ends_at_once(body: Body) -> Option<bool> {
    body.collect().now_or_never().map(|read| read.is_ok())
}

#[tokio::test(start_paused = true)]
async fn the_lease_alone_confirms_the_end_and_the_release_follows_it() {
    for response in BODIES {
        let (store, layer) = at_body_end();
        let app = answering(layer.confirm(Confirm::Deadline), response);
        let body = put(&app, "/orders/1").await.into_body();
        store.silence(true);
        assert_eq!(ends_at_once(body), Some(true));
        settle().await;
        assert!(!store.is_free(), "the store was silent");
        store.silence(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(store.is_free());
    }
}

/// With `OnLost::Continue` the loss does not end the body by itself.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_confirms_no_end() {
    for response in BODIES {
        for on_lost in [OnLost::Abort, OnLost::Continue] {
            let (store, layer) = at_body_end();
            let layer = layer.confirm(Confirm::Deadline).on_lost(on_lost);
            let layer = layer.lease(Lease::Renewed(Duration::from_secs(3)));
            let response = put(&answering(layer, response), "/orders/1").await;
            store.silence(true);
            tokio::time::sleep(Duration::from_secs(4)).await;
            let body = response.into_body();
            assert_eq!(ends_at_once(body), Some(false), "{on_lost:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn readers_stream_together_and_a_writer_waits_for_the_last_of_them() {
    for confirm in [Confirm::Strict, Confirm::Store, Confirm::Deadline] {
        for response in BODIES {
            let (store, layer) = at_body_end();
            let app = answering(
                layer.reads(crate::layer::confirmed::confirmed_by(confirm)),
                response,
            );
            let first = send(&app, request("GET", "/orders/1")).await;
            let last = send(&app, request("GET", "/orders/1")).await;
            let mut writer = Box::pin(put(&app, "/orders/1"));
            assert!((&mut writer).now_or_never().is_none(), "{confirm:?}");
            first.into_body().collect().await.unwrap();
            settle().await;
            assert!((&mut writer).now_or_never().is_none(), "{confirm:?}");
            last.into_body().collect().await.unwrap();
            let written = tokio::time::timeout(Duration::from_millis(10), writer).await;
            let written = written.expect("no reader is left").into_body();
            written.collect().await.unwrap();
            assert!(store.is_free());
        }
    }
}

/// While the store is silent, the lease confirms the end of a read after a second, or at once if it is set so. The end of a write
/// needs the store.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_read_is_confirmed_otherwise_than_that_of_a_write() {
    for (method, reads, at_once, in_a_second) in [
        ("GET", Confirm::Store, None, true),
        ("GET", Confirm::Deadline, Some(true), true),
        ("GET", Confirm::Strict, None, false),
        ("PUT", Confirm::Deadline, None, false),
    ] {
        for response in BODIES {
            let (store, layer) = at_body_end();
            let app = answering(
                layer.reads(crate::layer::confirmed::confirmed_by(reads)),
                response,
            );
            let response = send(&app, request(method, "/orders/1")).await;
            store.silence(true);
            let mut end = response.into_body().collect();
            let ended = (&mut end).now_or_never().map(|end| end.is_ok());
            assert_eq!(ended, at_once, "{method}, {reads:?}");
            if ended.is_none() {
                let end = tokio::time::timeout(Duration::from_millis(1_100), end).await;
                let end = end.expect("it is decided within a second");
                assert_eq!(end.is_ok(), in_a_second, "{method}, {reads:?}");
            }
        }
    }
}

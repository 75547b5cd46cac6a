//! The page that Prometheus reads. The docs of `tower_distributed_lock::telemetry` list the metrics.

use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusBuilder;

/// Upper bounds of the histograms.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0,
];

/// How often measurements are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// Call it before the first lock client is made: a client describes its metrics when it is made.
pub(crate) fn routes() -> anyhow::Result<Router> {
    let prometheus = PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .install_recorder()?;
    let upkeep = prometheus.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    let show = async move || {
        let text = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
        (text, prometheus.render())
    };
    Ok(Router::new().route("/metrics", get(show)))
}

//! Stops without leaving a lock behind: requests have time to finish, those that still wait then are answered 503, and
//! every hold is released.
//!
//! ```text
//! $ cargo run --example graceful_shutdown &
//! kill 4711 to stop
//! $ for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code}\n' -X PUT localhost:3000/documents/1 & sleep 0.1; done; kill 4711; wait
//! stopping: no new connections
//! 200                                # held the lock for two seconds
//! every request is finished: false
//! 503                                # waited until the end: come back later
//! 500                                # waited for the first, and began too late: its outcome is unknown
//! every lock is released
//! ```

use std::time::Duration;

use axum::Router;
use axum::routing::put;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};

/// How long requests may take after the signal to stop.
const DRAIN: Duration = Duration::from_secs(3);

async fn replace() -> &'static str {
    tokio::time::sleep(Duration::from_secs(2)).await;
    "replaced\n"
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = LockClient::new(MemoryStore::new());
    let lock = DistributedLockLayer::new(locks.clone());
    let app = Router::new().route("/documents/{id}", put(replace).route_layer(lock));

    let (stop, mut stopped) = watch::channel(());
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.changed().await;
    });
    let mut server = tokio::spawn(server.into_future());
    // Before the line is printed: its reader may send the signal at once.
    let mut terminate = signal(SignalKind::terminate())?;
    println!("kill {} to stop", std::process::id());
    terminate.recv().await;

    println!("stopping: no new connections");
    stop.send_replace(());
    let drained = timeout(DRAIN, &mut server).await.is_ok();
    println!("every request is finished: {drained}");
    // While the server still runs, so that its clients get their answers.
    locks.shutdown(Duration::from_secs(5)).await?;
    println!("every lock is released");
    if !drained {
        server.await??;
    }
    Ok(())
}

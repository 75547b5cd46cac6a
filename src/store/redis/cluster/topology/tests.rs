use redis::IntoConnectionInfo;
use tokio::net::TcpListener;

use super::*;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::node_context::ConnectionSettings;
use crate::store::redis::replicas::Acknowledgement;
use crate::store::redis::timeouts::Timeouts;
use crate::store::redis::tls::Tls;

const CONNECT: Duration = Duration::from_millis(500);

/// A server that accepts connections, and answers nothing.
async fn silent() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = "127.0.0.1".into();
    (listener, Address { host, port })
}

/// Half of a Cluster is cut off: the time does not grow with each server that is silent.
#[tokio::test]
async fn servers_that_are_silent_are_asked_together() {
    let mut servers = Vec::new();
    for _ in 0..6 {
        servers.push(silent().await);
    }
    let mut addresses = servers.iter().map(|(_, address)| address.clone());
    let [failed, other] = [(); 2].map(|()| addresses.next().unwrap());
    let url = format!("redis://127.0.0.1:{}", failed.port);
    let address = url.into_connection_info().unwrap();
    let tls = Tls::default().config([&address]).unwrap();
    let timeouts = Timeouts {
        connect: CONNECT,
        response: CONNECT,
    };
    let factory = MemberFactory {
        like: Endpoint::new(address, tls, timeouts),
        connections: 1,
        settings: ConnectionSettings {
            timeouts,
            acknowledgement: Acknowledgement::default(),
            background: Arc::default(),
            channels: Arc::default(),
        },
    };
    let cluster = Arc::new(Cluster::new(addresses.collect(), factory));
    let range = |first, last, master: &Address| Range {
        first,
        last,
        master: master.clone(),
        replicas: Vec::new(),
    };
    let seen = cluster.install(&[range(0, 8191, &failed), range(8192, 16383, &other)]);
    let stale = Stale::Failed(failed);
    let began = Instant::now();
    let answer = cluster.newer(Some(Doubt { seen, stale })).await;
    assert!(answer.is_err(), "none answers");
    // The other master, then four, then the last one.
    assert!(began.elapsed() < CONNECT * 9 / 2, "{:?}", began.elapsed());
}

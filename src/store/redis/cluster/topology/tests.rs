use redis::IntoConnectionInfo;
use tokio::net::TcpListener;

use super::*;
use crate::store::redis::access::Access;
use crate::store::redis::channels::ChannelKind;
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
        like: Endpoint::new(address, tls, timeouts, Access::default()),
        connections: 1,
        settings: ConnectionSettings {
            timeouts,
            acknowledgement: Acknowledgement::default(),
            background: Arc::default(),
            channels: Arc::new(ChannelKind::new(None)),
        },
    };
    let cluster = Arc::new(Cluster::new(addresses.collect(), factory));
    let range = |first, last, master: &Address| Range {
        first,
        last,
        master: master.clone(),
        replicas: Vec::new(),
    };
    let seen = cluster.install(&Layout {
        ranges: vec![range(0, 8191, &failed), range(8192, 16383, &other)],
        epoch: 0,
    });
    let stale = Stale::Failed(failed);
    let began = Instant::now();
    let answer = cluster.newer(Some(Doubt { seen, stale })).await;
    assert!(answer.is_err(), "none answers");
    // The other master, then four, then the last one.
    assert!(began.elapsed() < CONNECT * 9 / 2, "{:?}", began.elapsed());
}

/// A server that is cut off from a failover would take the map back, and end subscriptions.
#[tokio::test]
async fn an_older_map_does_not_win_unless_all_are_older() {
    let epochs = async |epochs: &[u64], known| {
        let layouts = epochs.iter().map(|epoch| {
            let (ranges, epoch) = (Vec::new(), *epoch);
            Ok(Layout { ranges, epoch })
        });
        let layouts: Vec<Result<_, StoreError>> = layouts.collect();
        let newest = newest(stream::iter(layouts), known, None).await;
        newest.unwrap().epoch
    };
    assert_eq!(
        epochs(&[3, 4, 5], 4).await,
        4,
        "the first that is not older"
    );
    assert_eq!(
        epochs(&[2, 3, 1], 4).await,
        3,
        "the Cluster was set up anew"
    );
    let failed = [Err(unreachable("down"))];
    assert!(newest(stream::iter(failed), 0, None).await.is_err());
}

use redis::IntoConnectionInfo;
use tokio::net::TcpListener;

use super::*;
use crate::store::redis::link::endpoint::access::Access;
use crate::store::redis::link::endpoint::tls::Tls;
use crate::store::redis::link::timeouts::Timeouts;

const CONNECT: Duration = Duration::from_millis(500);

/// A Cluster of which these servers are known. It has no connections.
pub(in super::super) fn cluster(
    like: &Address,
    seeds: impl IntoIterator<Item = Address>,
) -> Arc<Cluster> {
    cluster_by(Access::default(), like, seeds)
}

fn cluster_by(
    access: Access,
    like: &Address,
    seeds: impl IntoIterator<Item = Address>,
) -> Arc<Cluster> {
    let url = format!("redis://{like}");
    let address = url.into_connection_info().unwrap();
    let tls = Tls::default().config([&address]).unwrap();
    let timeouts = Timeouts {
        connect: CONNECT,
        response: CONNECT,
        ..Timeouts::default()
    };
    let like = Endpoint::new(address, tls, timeouts, access);
    let settings = LinkSettings {
        replicas: 0,
        background: Arc::default(),
        channels: None,
    };
    Arc::new(Cluster::new(seeds.into_iter().collect(), like, settings))
}

/// A server that accepts connections, and answers nothing.
async fn silent() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Address::new("127.0.0.1", port))
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
    let cluster = cluster(&failed, addresses);
    let [first, second] = [&failed, &other].map(|address| cluster.node(address));
    let seen = cluster.install(SlotMap {
        ranges: vec![(0, 8191, first.clone()), (8192, 16383, second.clone())],
        masters: vec![first, second],
        ..SlotMap::default()
    });
    let doubt = Doubt {
        seen,
        about: Some(failed),
        is_owner: false,
    };
    let began = Instant::now();
    let answer = cluster.newer(Some(doubt)).await;
    assert!(answer.is_err(), "none answers");
    // The other master, then four, then the last one.
    assert!(began.elapsed() < CONNECT * 9 / 2, "{:?}", began.elapsed());
}

/// The map is for the addresses that servers announce.
#[tokio::test]
async fn a_seed_is_asked_at_the_address_that_the_program_gives() {
    let (server, seed) = silent().await;
    let mapped = || ("mapped".to_owned(), 1);
    let access = Access {
        map: Some(Arc::new(move |_, _| mapped())),
        ..Access::default()
    };
    let cluster = cluster_by(access, &seed, [seed.clone()]);
    let announced = cluster.node(&seed);
    let (host, port) = mapped();
    assert_eq!(announced.connector().server(), Some((host, Some(port))));
    let asking = tokio::spawn(async move { cluster.map().await.is_ok() });
    let asked = tokio::time::timeout(CONNECT * 4, server.accept()).await;
    assert!(asked.is_ok(), "another server was asked");
    assert!(!asking.await.unwrap(), "it answers nothing");
}

/// A server that is cut off from a failover would take the map back, and end subscriptions.
#[tokio::test]
async fn an_older_map_does_not_win_unless_all_are_older() {
    let epochs = async |epochs: &[u64], known| {
        let maps = epochs.iter().map(|epoch| {
            Ok(SlotMap {
                epoch: *epoch,
                ..SlotMap::default()
            })
        });
        let maps: Vec<Result<_, StoreError>> = maps.collect();
        newest(stream::iter(maps), known).await.unwrap().epoch
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
    assert!(newest(stream::iter(failed), 0).await.is_err());
}

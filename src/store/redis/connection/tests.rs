use deadpool::managed::PoolConfig;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use super::*;
use crate::store::redis::endpoint::{Endpoint, RawConnection};
use crate::store::redis::tls::Tls;

fn connection() -> Arc<SharedConnection> {
    let address = "redis://127.0.0.1:1".into_connection_info().unwrap();
    let tls = Tls::default().config([&address]).unwrap();
    let timeouts = Timeouts::default();
    let pool = Endpoint::new(address, tls, timeouts).pool(PoolConfig::default());
    let settings = ConnectionSettings {
        timeouts,
        acknowledgement: Acknowledgement::default(),
        background: Arc::default(),
    };
    let connector = Connector::Server(pool.unwrap());
    SharedConnection::new(connector, Purpose::Commands, &settings, Arc::default())
}

/// A connection that an attempt to connect has just opened, and its other end.
async fn opened() -> (NewConnection, DuplexStream) {
    let (near, far) = duplex(64);
    let settings = RedisConnectionInfo::default();
    let settings = settings
        .set_skip_set_lib_name()
        .set_protocol(ProtocolVersion::RESP2);
    let config = AsyncConnectionConfig::new();
    let opening = MultiplexedConnection::new_with_config(&settings, near, config);
    let (handle, driver) = opening.await.unwrap();
    tokio::spawn(driver);
    let opened = NewConnection {
        taken: Taken::uncounted(RawConnection::given(handle)),
        answer: Value::Okay,
        role: None,
    };
    (opened, far)
}

async fn has_ended(mut far: DuplexStream) -> bool {
    let end = timeout(Duration::from_secs(60), far.read_u8()).await;
    end.is_ok_and(|end| end.is_err())
}

/// `close` aborts the tasks, but a task that is past its last await still installs its connection.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_opened_while_the_store_ends_is_closed() {
    let connection = connection();
    let (before, far) = opened().await;
    connection.install(before);
    assert!(connection.is_up());
    connection.close();
    assert!(!connection.is_up());
    assert!(has_ended(far).await, "the store is gone");

    let (late, far) = opened().await;
    connection.install(late);
    assert!(!connection.is_up());
    assert!(has_ended(far).await, "the store was gone before");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_closed_starts_no_task() {
    let connection = connection();
    connection.close();
    let error = connection.query(&redis::cmd("PING")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    connection.probe();
    let mut state = connection.state();
    connection.ensure_reconnecting(&mut state);
    assert!(state.reconnecting.is_none() && state.probing.is_none() && state.following.is_none());
}

use redis::IntoConnectionInfo;

use super::*;
use crate::store::redis::connector::Connector;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::node_context::ConnectionSettings;
use crate::store::redis::replicas::Acknowledgement;
use crate::store::redis::timeouts::Timeouts;
use crate::store::redis::tls::Tls;

/// Subscriptions without a task.
fn subscriptions() -> Arc<Subscriptions> {
    let address = "redis://127.0.0.1:1".into_connection_info().unwrap();
    let tls = Tls::default().config([&address]).unwrap();
    let timeouts = Timeouts::default();
    let connector = Connector::Server(Endpoint::new(address, tls, timeouts), None);
    let settings = ConnectionSettings {
        timeouts,
        acknowledgement: Acknowledgement::default(),
        background: Arc::default(),
        channels: Arc::default(),
    };
    Subscriptions::new(&NodeContext::new(connector, settings))
}

fn push(kind: PushKind, channel: &str) -> PushInfo {
    let data = vec![Value::BulkString(channel.into()), Value::Int(1)];
    PushInfo { kind, data }
}

#[test]
fn a_failure_to_connect_is_no_answer_to_a_subscription_that_is_sent_afterwards() {
    let subscriptions = subscriptions();
    let (_early, _) = subscriptions.register("k".to_owned());
    subscriptions.failed(&unreachable("it is down"));
    // The server is back.
    assert_eq!(subscriptions.changes().len(), 1);
    let (_late, answer) = subscriptions.register("k".to_owned());
    assert!(answer.borrow().is_none(), "the server has not answered");
    subscriptions.take_in(&push(PushKind::Subscribe, "k"));
    assert!(matches!(*answer.borrow(), Some(Ok(()))));
}

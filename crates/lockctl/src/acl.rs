//! `lockctl acl`: the rights that a Redis user needs.

use serde_json::json;
use tower_distributed_lock::RedisStore;
use tower_distributed_lock::store::redis::AclRules;

use crate::cli::AclArgs;
use crate::connection::Connection;
use crate::exit::Failure;

/// Adds the rules of an option.
type Extend = fn(AclRules) -> AclRules;

pub(crate) fn acl(args: &AclArgs, connection: &Connection) -> Result<u8, Failure> {
    let mut rules = RedisStore::acl_rules(&args.prefixes);
    if let Some(name) = &connection.namespace {
        rules = rules.namespace(name);
    }
    let options: [(bool, Extend); 5] = [
        (args.admin, AclRules::admin),
        (args.announce, AclRules::announce),
        (args.audit, AclRules::audit),
        (args.replicas, AclRules::replicas),
        (connection.cluster, AclRules::cluster),
    ];
    for (_, extend) in options.into_iter().filter(|(is_wanted, _)| *is_wanted) {
        rules = extend(rules);
    }
    let list: Vec<_> = rules.iter().collect();
    args.output
        .print(&json!({ "rules": list }), || format!("{rules}\n"))
}

//! `lockctl acl`: the rights that a Redis user needs.

use tower_distributed_lock::RedisStore;

use crate::cli::AclArgs;
use crate::connection::Connection;
use crate::exit::Failure;
use crate::print;
use crate::show::json;

pub(crate) fn acl(args: &AclArgs, connection: &Connection) -> Result<u8, Failure> {
    let mut rules = RedisStore::acl_rules(&args.prefixes);
    if let Some(name) = &connection.namespace {
        rules = rules.namespace(name);
    }
    if args.admin {
        rules = rules.admin();
    }
    if args.announce {
        rules = rules.announce();
    }
    if args.audit {
        rules = rules.audit();
    }
    if args.replicas {
        rules = rules.replicas();
    }
    if connection.cluster {
        rules = rules.cluster();
    }
    if connection.sentinel.is_some() {
        rules = rules.sentinel();
    }
    let text = match args.output.json {
        true => json(&serde_json::json!({ "rules": rules.iter().collect::<Vec<_>>() })),
        false => format!("{rules}\n"),
    };
    print(text.as_bytes())
}

//! An audit as a table.

use std::fmt;

use super::Audit;
use crate::error::StoreError;

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = rows(self);
        let width = rows.iter().map(|(name, _)| name.chars().count()).max();
        let width = width.unwrap_or(0);
        for (n, (name, text)) in rows.iter().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}{name:width$}  {text}")?;
        }
        Ok(())
    }
}

fn rows(audit: &Audit) -> Vec<(String, String)> {
    let mut rows = vec![("deployment".to_owned(), audit.deployment.to_string())];
    let facts = audit.facts.iter();
    rows.extend(facts.map(|(name, text)| ((*name).to_owned(), text.clone())));
    for (n, member) in (1..).zip(&audit.members) {
        rows.extend(self::member(&format!("store {n}"), member));
    }
    let promises = audit.promises().map(|promise| {
        let name = format!("{} {}", promise.id, promise.name);
        (name, promise.kept.to_owned())
    });
    rows.extend(promises);
    let warnings = audit.warnings.iter();
    rows.extend(warnings.map(|warning| ("warning".to_owned(), warning.to_string())));
    rows
}

/// The rows for one store among several, and for its own members. Its deployment is left out: the promises depend on the
/// whole.
fn member(name: &str, member: &Result<Audit, StoreError>) -> Vec<(String, String)> {
    let member = match member {
        Ok(member) => member,
        Err(error) => return vec![(name.to_owned(), error.to_string())],
    };
    let facts: Vec<_> = member.facts.iter().map(|(_, text)| text.as_str()).collect();
    let text = match facts.is_empty() {
        true => member.deployment.to_string(),
        false => facts.join("; "),
    };
    let warnings = member.warnings.iter();
    let warnings = warnings.map(|warning| (format!("{name} warning"), warning.to_string()));
    let mut rows = vec![(name.to_owned(), text)];
    rows.extend(warnings);
    for (n, inner) in (1..).zip(&member.members) {
        rows.extend(self::member(&format!("{name}.{n}"), inner));
    }
    rows
}

#[cfg(test)]
mod tests {
    use crate::audit::{Deployment, Warning};
    use crate::error::StoreErrorKind;

    use super::*;

    #[test]
    fn a_table_has_one_row_for_each_fact_promise_and_warning() {
        let mut audit = Audit::new(Deployment::Volatile);
        audit.facts.push(("server", "Redis 7.0.15".to_owned()));
        audit
            .warnings
            .push(Warning::new("not_persistent", "set appendonly to yes"));
        let expected = "\
deployment              one server, which forgets when it ends
server                  Redis 7.0.15
S1 lease exclusion      unless the server ends, is flushed, or evicts keys
S5 confirmed exclusion  yes
S6 rising tokens        unless the server ends and its clock is set back
warning                 set appendonly to yes";
        assert_eq!(audit.to_string(), expected);
    }

    #[test]
    fn the_members_of_a_quorum_are_shown_with_what_weakens_each() {
        let mut audit = Audit::new(Deployment::Quorum { members: 3 });
        let mut evicting = Audit::new(Deployment::Durable);
        evicting.facts.push(("server", "Redis 8.0.0".to_owned()));
        let evicts = Warning::new("evicts", "set maxmemory-policy to noeviction");
        evicting.warnings.push(evicts);
        let silent = StoreError::new(StoreErrorKind::Unreachable, "down");
        let plain = Audit::new(Deployment::Memory);
        audit.members = vec![Ok(plain), Ok(evicting), Err(silent)];
        let expected = "\
deployment              a majority of 3 stores
store 1                 the memory of one process
store 2                 Redis 8.0.0
store 2 warning         set maxmemory-policy to noeviction
store 3                 the store cannot be reached
S1 lease exclusion      unless a majority loses its data, or its clocks' rate
S5 confirmed exclusion  yes
S6 rising tokens        no";
        assert_eq!(audit.to_string(), expected);
    }

    /// A quorum of Clusters, for example.
    #[test]
    fn what_weakens_a_member_of_a_member_is_shown_and_counted() {
        let evicts = || Warning::new("evicts", "allkeys-lru");
        let mut server = Audit::new(Deployment::Durable);
        server.warnings.push(evicts());
        let mut cluster = Audit::new(Deployment::Failover);
        cluster.members = vec![Ok(Audit::new(Deployment::Durable)), Ok(server)];
        let mut audit = Audit::new(Deployment::Quorum { members: 3 });
        audit.members = vec![Ok(cluster)];
        let table = audit.to_string();
        let warned = table.lines().find(|line| line.contains("allkeys-lru"));
        let warned = warned.expect("it is shown");
        assert!(warned.starts_with("store 1.2 warning"), "{warned}");
        assert_eq!(audit.every_warning(), [&evicts()]);
    }
}

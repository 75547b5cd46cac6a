use std::path::Path;

use super::*;

/// The quoted commands in the scripts of a folder.
fn called(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            called(&entry.expect("an entry").path(), found);
        }
        return;
    }
    let text = std::fs::read_to_string(path).expect("text");
    for call in ["redis.call('", "redis.pcall('", "on_hash('"] {
        for (at, _) in text.match_indices(call) {
            let rest = &text[at + call.len()..];
            found.insert(rest[..rest.find('\'').expect("a quote")].to_lowercase());
        }
    }
}

#[test]
fn every_command_of_the_scripts_is_granted_and_no_other() {
    let mut found = BTreeSet::new();
    called(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("lua"),
        &mut found,
    );
    let sent = [
        "eval",
        "evalsha",
        "ping",
        "scan",
        "strlen",
        "subscribe",
        "unsubscribe",
    ];
    found.extend(sent.map(str::to_owned));
    // The scripts get the name of this command as an argument.
    found.insert("publish".to_owned());
    let granted = LOCKING.split(' ').chain(ADMINISTERING.split(' '));
    assert_eq!(found, granted.map(str::to_owned).collect());
}

#[test]
fn every_command_of_the_locking_scripts_is_checked() {
    let text = include_str!("../../../../../lua/rights.lua");
    for command in LOCKING.split(' ') {
        let sent = ["eval", "evalsha", "ping", "subscribe", "unsubscribe"];
        let checked = text.contains(&format!("'{}'", command.to_uppercase()));
        assert_eq!(checked, !sent.contains(&command), "{command}");
    }
}

#[test]
fn every_name_that_belongs_to_a_lock_is_granted() {
    let text = include_str!("../../protocol/names.rs");
    let others = [names::MARK, names::PROCESS];
    let granted = [names::KEYS, &others, names::CHANNELS].concat();
    let named = text.split('"').skip(1).step_by(2);
    let is_prefix = |text: &&str| text.starts_with("redisson_") || text.starts_with("tower_lock_");
    let named: BTreeSet<_> = named.filter(is_prefix).collect();
    assert_eq!(named, granted.into_iter().collect());
}

#[test]
fn patterns_follow_redissons_names_and_match_nothing_else() {
    let plain = patterns("order:", names::KEYS);
    assert_eq!(plain[..2], ["~order:*", "~{order:*"]);
    assert!(plain.contains(&"~redisson_lock_token:{order:*".to_owned()));
    assert!(plain.contains(&"&redisson_rwlock:{order:*".to_owned()));
    let tagged = patterns("order:{", names::KEYS);
    assert_eq!(tagged[..2], ["~order:{*", "~redisson_lock_queue:order:{*"]);
    assert_eq!(patterns("a*[b] c", names::KEYS)[0], "~a\\*\\[b\\]?c*");
    assert_eq!(
        patterns("", names::KEYS),
        [
            "~*",
            "&redisson_lock__channel:*",
            "&redisson_rwlock:*",
            "&redisson_sc:*",
            "&tower_lock_enter:*",
            "&tower_lock_turn:*"
        ]
    );
}

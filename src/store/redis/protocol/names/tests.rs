use super::*;
use crate::store::redis::protocol::slot::Slot;
use uuid::Uuid;

#[test]
fn only_names_that_keep_their_keys_together_are_taken_in_a_cluster() {
    for (name, whole) in [
        ("plain", true),
        ("{tag}", true),
        ("a{tag}b", true),
        ("a{tag}b{c}}{", true),
        ("a}b{tag}", true),
        ("{{tag}", true),
        ("", false),
        ("{}foo", false),
        ("na{me", false),
        ("a}b", false),
        ("{}{tag}", false),
    ] {
        let key = LockKey::new(name);
        assert_eq!(share_a_slot(&key).is_ok(), whole, "{name}");
        let slot = |name: &str| Slot::of(LockKey::new(name).as_str());
        let aux = Name::at(&key, QUEUE).to_string();
        assert_eq!(slot(&aux) == slot(name), whole, "{name}");
    }
}

#[test]
fn names_are_redissons_with_and_without_a_hash_tag() {
    let id = HoldId::new(Uuid::nil(), 7);
    let uuid = Uuid::nil();
    for (key, tag) in [
        ("n", "{n}"),
        ("a{n}b", "a{n}b"),
        ("na{me", "na{me"),
        ("a}b", "{a}b}"),
    ] {
        let key = LockKey::new(key);
        assert_eq!(Name::lock(&key).to_string(), key.as_str());
        for (name, expected) in [
            (
                Name::at(&key, CHANNEL),
                format!("redisson_lock__channel:{tag}"),
            ),
            (
                Name::at(&key, CHANNEL).of(id),
                format!("redisson_lock__channel:{tag}:{uuid}:7"),
            ),
            (Name::at(&key, RW_CHANNEL), format!("redisson_rwlock:{tag}")),
            (Name::at(&key, TOKEN), format!("redisson_lock_token:{tag}")),
            (Name::at(&key, QUEUE), format!("redisson_lock_queue:{tag}")),
            (Name::at(&key, PERMIT_CHANNEL), format!("redisson_sc:{tag}")),
            (Name::permits(&key), format!("{tag}:timeout")),
            (
                Name::reader_timeout(&key, id),
                format!("{tag}:{uuid}:7:rwlock_timeout:1"),
            ),
            (Name::at(&key, BUSY), format!("tower_lock_busy:{tag}")),
            (Name::at(&key, TURN), format!("tower_lock_turn:{tag}")),
            (Name::at(&key, ENTER), format!("tower_lock_enter:{tag}")),
            (Name::at(&key, RECORD), format!("tower_lock_record:{tag}")),
        ] {
            assert_eq!(name.to_string(), expected);
        }
    }
}

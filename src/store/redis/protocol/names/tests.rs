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
        let names = Names::of(&key);
        assert_eq!(names.share_a_slot().is_ok(), whole, "{name}");
        let slot = |name: &str| Slot::of(LockKey::new(name).as_str());
        let aux = names.at(QUEUE).to_string();
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
        let names = Names::of(&key);
        assert_eq!(names.lock().to_string(), key.as_str());
        for (name, expected) in [
            (names.at(CHANNEL), format!("redisson_lock__channel:{tag}")),
            (
                names.at(CHANNEL).of(id),
                format!("redisson_lock__channel:{tag}:{uuid}:7"),
            ),
            (names.at(RW_CHANNEL), format!("redisson_rwlock:{tag}")),
            (names.at(TOKEN), format!("redisson_lock_token:{tag}")),
            (names.at(QUEUE), format!("redisson_lock_queue:{tag}")),
            (names.at(PERMIT_CHANNEL), format!("redisson_sc:{tag}")),
            (names.permits(), format!("{tag}:timeout")),
            (
                names.reader_timeout(id),
                format!("{tag}:{uuid}:7:rwlock_timeout:1"),
            ),
            (names.at(BUSY), format!("tower_lock_busy:{tag}")),
            (names.at(TURN), format!("tower_lock_turn:{tag}")),
            (names.at(ENTER), format!("tower_lock_enter:{tag}")),
            (names.at(RECORD), format!("tower_lock_record:{tag}")),
        ] {
            assert_eq!(name.to_string(), expected);
        }
    }
}

//! How much memory the bodies of requests that wait for their locks may occupy.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lock::LockKey;
use crate::sync::Mutex;

/// How much of each body needs no room: a small body waits whatever the others occupy.
const FREE: usize = 64 * 1024;

/// What the bodies of the requests that wait for one key may occupy together, beyond the free part of each.
const PER_KEY: usize = 16 * 1024 * 1024;

/// The budget of a layer. Clones share it.
///
/// Keys have no budget together, because a stranger who waits with bodies for some keys could use it up for all others. A body that is
/// still arriving needs no room either. What the bodies of many keys may occupy is the body limit of each request.
///
/// Between calls, the map has the sum of the [`Room`]s of each key that has one. No other mutex is taken under this one.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyBudget(Arc<Mutex<HashMap<LockKey, usize>>>);

impl BodyBudget {
    /// Takes room for a body of `length` bytes, whose request waits for `key`. `None`: there is none.
    pub(crate) fn room(&self, key: &LockKey, length: usize) -> Option<Room> {
        let bytes = length.saturating_sub(FREE);
        if bytes == 0 {
            return Some(Room(None));
        }
        let mut taken = self.0.lock();
        let of_key = taken.get(key).copied().unwrap_or_default();
        // A key has room for one body, however long.
        if of_key > 0 && of_key + bytes > PER_KEY {
            return None;
        }
        taken.insert(key.clone(), of_key + bytes);
        Some(Room(Some((self.clone(), key.clone(), bytes))))
    }
}

/// The room of one body in the budget, which is given back when this is dropped. A small body needs none.
#[derive(Debug)]
pub(crate) struct Room(Option<(BodyBudget, LockKey, usize)>);

impl Drop for Room {
    fn drop(&mut self) {
        let Some((BodyBudget(taken), key, bytes)) = &self.0 else {
            return;
        };
        let mut taken = taken.lock();
        if let Some(of_key) = taken.get_mut(key) {
            *of_key -= bytes;
            if *of_key == 0 {
                taken.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn key(n: usize) -> LockKey {
        LockKey::new(format!("k:{n}"))
    }

    #[test]
    fn a_small_body_always_has_room() {
        let budget = BodyBudget::default();
        let _full = budget.room(&key(0), PER_KEY + FREE).expect("it is empty");
        assert!(budget.room(&key(0), FREE + 1).is_none());
        assert!(budget.room(&key(0), FREE).is_some());
    }

    #[test]
    fn room_is_given_back() {
        let budget = BodyBudget::default();
        for n in 0..100 {
            let _room = budget.room(&key(n), MIB + FREE).expect("no other waits");
        }
        assert!(budget.0.lock().is_empty());
    }

    #[test]
    fn one_key_leaves_room_to_others() {
        let budget = BodyBudget::default();
        let ask = |n| budget.room(&key(n), MIB + FREE);
        let of_one: Vec<_> = (0..100).map_while(|_| ask(0)).collect();
        assert_eq!(of_one.len(), PER_KEY / MIB);
        let of_others: Vec<_> = (1..100).map_while(ask).collect();
        assert_eq!(of_others.len(), 99);
        drop(of_one);
        assert!(ask(0).is_some());
    }

    #[test]
    fn a_key_without_other_waiters_has_room_for_one_body_of_any_length() {
        let budget = BodyBudget::default();
        let _long = budget.room(&key(0), PER_KEY + MIB).expect("no other waits");
        assert!(budget.room(&key(0), MIB).is_none());
        assert!(budget.room(&key(1), MIB).is_some());
    }
}

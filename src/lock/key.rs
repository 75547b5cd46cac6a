//! The names of locks.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// What a component may contain unescaped: RFC 3986 "unreserved", and `/`, which separates nothing here.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// What a resource may contain unescaped: the same, and `:`, which the program itself has put there.
const RESOURCE_ESCAPED: &AsciiSet = &ESCAPED.remove(b':');

/// A composed name that is longer than this (bytes) ends in a digest instead.
const MAX_COMPOSED: usize = 256;

/// How much of the resource is kept readable before a digest (bytes).
const DIGEST_PREFIX: usize = 64;

/// The name of a lock.
///
/// **In Redis, the name is that of a key**, as with Redisson. The lock is a hash under that name, so choose a name that no other data
/// uses: `lock:order:42`, not `order:42`. If the key has data of another type, the data is kept, and attempts fail with
/// [`Conflict`](crate::LockError::Conflict). Fields that the application adds to the lock's hash make the release fail in the
/// same way: they are kept, and no attempt is granted until they are removed.
///
/// There are two ways to a key, for two kinds of input:
///
/// * [`LockKey::new`] (and `From<&str>`, `From<String>`) takes a name **as it is**, byte for byte what Redisson would use. It
///   is for names that the program chose, such as `"lock:account:42"` or a name shared with a Java service.
/// * [`LockKey::from_parts`] composes a key from a resource, which the program chose, and components that **clients may have
///   chosen**. Every component is percent-encoded (RFC 3986) and joined by `:`, so that different components of one resource
///   never make the same key, no brace or control character reaches the store, and a name of more than 256 bytes ends in its
///   SHA-256 instead. A [`Resource`](crate::Resource) composes its keys so.
///
/// ```
/// use tower_distributed_lock::LockKey;
///
/// assert_eq!(LockKey::from_parts("lock:order", ["42"]).as_str(), "lock:order:42");
/// assert_eq!(LockKey::from_parts("lock:order", ["4:2", "{x}"]).as_str(), "lock:order:4%3A2:%7Bx%7D");
/// assert_ne!(LockKey::from_parts("a", ["b", ""]), LockKey::from_parts("a", ["b"]));
/// ```
#[derive(Clone)]
pub struct LockKey {
    /// The whole name.
    name: Arc<str>,
    /// Half of the hash of `name` under a random key of this process. The other half would make each key eight bytes longer. It is
    /// 0, and computed when it is needed, until the key is in a name space: only then the whole name is known, and the key is
    /// looked up many times.
    hash: u32,
    /// The length of the name space that a client or an admin has put before the name, which may be none at all; `None`: the key
    /// is in no name space yet.
    namespace: Option<u8>,
}

impl LockKey {
    /// Uses `name` as it is.
    ///
    /// Redisson derives further key names from it; in a Redis Cluster they share its slot only if the name has either no
    /// brace or one well-formed `{hash tag}`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            hash: 0,
            namespace: None,
        }
    }

    /// Composes a key from a resource and its components. Different components make different keys, of 256 bytes at most.
    pub fn from_parts<P>(resource: &str, components: P) -> Self
    where
        P: IntoIterator,
        P::Item: AsRef<str>,
    {
        with_buffer(|name| {
            name.extend(utf8_percent_encode(resource, RESOURCE_ESCAPED));
            let readable = name.len().min(DIGEST_PREFIX);
            for component in components {
                name.push(':');
                name.extend(utf8_percent_encode(component.as_ref(), ESCAPED));
            }
            Self::bounded(name, readable)
        })
    }

    /// One name of a resource, its `scope`, which is percent-encoded, and `keys`. A single key is composed already: it stays as it
    /// is. Several are encoded, so that different keys never make the same name.
    pub(crate) fn scoped(resource: &str, scope: [&str; 3], keys: &[&Self]) -> Self {
        with_buffer(|name| {
            name.push_str(resource);
            for part in scope {
                name.push(':');
                name.extend(utf8_percent_encode(part, ESCAPED));
            }
            match keys {
                [key] if !key.as_str().starts_with('+') => {
                    name.push(':');
                    name.push_str(key.as_str());
                }
                keys => {
                    for key in keys {
                        name.push_str(":+");
                        name.extend(utf8_percent_encode(key.as_str(), ESCAPED));
                    }
                }
            }
            Self::bounded(name, resource.len())
        })
    }

    /// The key of one tenant's own thing of this name, such as `lock:order:42:@acme`: what
    /// [`DistributedLockLayer::tenant`](crate::DistributedLockLayer::tenant) locks. `tenant` is percent-encoded.
    ///
    /// ```
    /// use tower_distributed_lock::LockKey;
    ///
    /// let order = LockKey::from_parts("lock:order", ["42"]);
    /// assert_eq!(order.tenant("acme").as_str(), "lock:order:42:@acme");
    /// ```
    pub fn tenant(&self, tenant: impl AsRef<str>) -> Self {
        let key = with_buffer(|name| {
            name.push_str(self.name());
            let readable = name.len().min(DIGEST_PREFIX);
            let readable = (0..=readable).rev().find(|&end| name.is_char_boundary(end));
            // A component never begins with a bare `@`.
            name.push_str(":@");
            name.extend(utf8_percent_encode(tenant.as_ref(), ESCAPED));
            Self::bounded(name, readable.unwrap_or_default())
        });
        match self.namespace() {
            Some(namespace) => key.in_namespace(namespace),
            None => key,
        }
    }

    /// A composed name; if it is too long, its beginning and a digest of all.
    fn bounded(name: &str, readable: usize) -> Self {
        if name.len() <= MAX_COMPOSED {
            return Self::new(name);
        }
        // An encoded component never contains a bare `#`, so a digest never equals a component.
        let digest = Sha256::digest(name.as_bytes());
        let mut short = format!("{}:#", &name[..readable]);
        short.extend(hex(&digest));
        Self::new(short)
    }

    /// The whole name, as it stands in the store: with the [name space](crate::LockClientBuilder::namespace) of the client.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The name as the program has chosen it: without the name space of the client. `Display`, `Debug` and `Serialize` show
    /// this one.
    pub fn name(&self) -> &str {
        &self.name[usize::from(self.namespace.unwrap_or_default())..]
    }

    /// The name space of the key, its end included, which is empty for a client without one; `None` if the key is in none yet.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let length = usize::from(self.namespace?);
        Some(&self.name[..length])
    }

    /// The key of no name space yet, in that one. The name is hashed now, and never again.
    pub(crate) fn in_namespace(self, namespace: &str) -> Self {
        let whole = match namespace.is_empty() {
            true => self,
            false => with_buffer(|name| {
                name.extend([namespace, self.as_str()]);
                Self::new(&**name)
            }),
        };
        whole.with_namespace(namespace.len())
    }

    /// The same key, the first `namespace` bytes of whose name are its name space.
    pub(crate) fn with_namespace(mut self, namespace: usize) -> Self {
        self.namespace = Some(u8::try_from(namespace).expect("a name space is short"));
        self.hash = self.hashed();
        self
    }

    fn hashed(&self) -> u32 {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        match self.hash {
            0 => HASHER.hash_one(&self.name) as u32,
            hash => hash,
        }
    }

    /// The place of this key among `places`, constant in this process.
    pub(crate) fn place_among(&self, places: usize) -> usize {
        // The high bits: a map in such a place uses the low bits first.
        (self.spread() >> 32) as usize % places
    }

    /// Its hash in 64 bits, of which a map uses the highest and the lowest. An odd factor keeps different hashes different.
    fn spread(&self) -> u64 {
        u64::from(self.hashed()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Calls `compose` with an empty buffer. The thread keeps it for the next name, so that a name is allocated once, as it is kept.
fn with_buffer<T>(compose: impl FnOnce(&mut String) -> T) -> T {
    thread_local! {
        static BUFFER: Cell<String> = const { Cell::new(String::new()) };
    }
    // A thread that ends has no buffer any more.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    let composed = compose(&mut buffer);
    if buffer.capacity() <= 2 * MAX_COMPOSED {
        buffer.clear();
        let _ = BUFFER.try_with(|kept| kept.set(buffer));
    }
    composed
}

/// Whole names are compared: a key is the same in every client of a store.
impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for LockKey {}

impl PartialOrd for LockKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.spread());
    }
}

/// A map of keys that uses their stored hashes.
pub(crate) type KeyMap<V> = HashMap<LockKey, V, BuildHasherDefault<KeyHasher>>;

/// The hash that a key has written.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key writes one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Bytes as hexadecimal digits, in lower case.
pub(crate) fn hex(bytes: &[u8]) -> impl Iterator<Item = char> {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.map(|nibble| char::from(b"0123456789abcdef"[usize::from(nibble)]))
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl From<Arc<str>> for LockKey {
    fn from(name: Arc<str>) -> Self {
        Self::new(name)
    }
}

impl From<&str> for LockKey {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for LockKey {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<&String> for LockKey {
    fn from(name: &String) -> Self {
        Self::new(name.as_str())
    }
}

impl From<&LockKey> for LockKey {
    fn from(key: &LockKey) -> Self {
        key.clone()
    }
}

/// As its name.
impl Serialize for LockKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

#[cfg(test)]
mod tests;

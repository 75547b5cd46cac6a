use std::fmt::Display;

use super::{LockFamily, LockKey, LockMode, ResourceKey};

/// A kind of locked resource, such as orders: one name and one family of modes, for the layer, the client and the admin.
///
/// Two pieces of code exclude each other only if they lock **the same name in modes of one family**. A resource declares both
/// once:
///
/// ```
/// # #[cfg(feature = "axum")]
/// # async fn f(locks: tower_distributed_lock::LockClient) -> Result<(), tower_distributed_lock::LockError> {
/// use tower_distributed_lock::{DistributedLockLayer, LockMode, Resource, key};
///
/// const ORDERS: Resource = Resource::new("lock:order");
///
/// // Requests: GET on order 42 reads `lock:order:42`, PUT writes it.
/// let layer = DistributedLockLayer::new(locks.clone()).key(key::param(ORDERS, "id"));
/// // A job: writes `lock:order:42`, so it excludes those requests.
/// let guard = locks.lock(ORDERS.id(42)).await?;
/// # guard.release().await?;
/// // Or reads it.
/// let guard = locks.lock(ORDERS.id(42)).mode(LockMode::Read).await?;
/// # drop((layer, guard)); Ok(())
/// # }
/// ```
///
/// The name is a key in Redis, next to the application's own data. Choose a name that no other data uses: `lock:order`, not
/// `order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource {
    name: &'static str,
    /// The mode of a caller that names none; its family is that of the resource. `None`: any family.
    mode: Option<LockMode>,
}

impl Resource {
    /// A resource with readers and writers: locked in [`LockMode::Read`] and [`LockMode::Write`], the layer's default modes. A
    /// client without a mode writes.
    ///
    /// # Panics
    ///
    /// If `name` is `path` or `idempotency`, under which the layers keep names of their own; in a constant, the program does not
    /// compile. For the key of [`key::path()`](crate::key::path()) there is [`LockKey::from_parts`].
    pub const fn new(name: &'static str) -> Self {
        assert!(
            !is_same(name, "path") && !is_same(name, "idempotency"),
            "the names of `path` and `idempotency` are those of the layers: choose another one, such as `lock:path`"
        );
        Self {
            name,
            mode: Some(LockMode::Write),
        }
    }

    /// The same name for exclusive locks: [`LockMode::Reentrant`], the mode of a client without a mode, and
    /// [`LockMode::Fair`]. A layer then needs [`mode`](crate::DistributedLockLayer::mode).
    pub const fn exclusive(self) -> Self {
        Self {
            name: self.name,
            mode: Some(LockMode::Reentrant),
        }
    }

    /// The same name for permits, so many at a time per key ([`LockMode::permits`]): the limit stands in one place. A client
    /// that names no mode takes a permit, and so does a layer, whatever its mode.
    ///
    /// ```
    /// # async fn f(locks: tower_distributed_lock::LockClient) -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::Resource;
    ///
    /// const MAILS: Resource = Resource::new("permit:mail").permits(10);
    ///
    /// // At most ten at a time for this tenant, over all processes.
    /// let permit = locks.lock(MAILS.id("tenant-7")).await?;
    /// # permit.release().await
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is 0; in a constant, the program does not compile.
    pub const fn permits(self, limit: u32) -> Self {
        Self {
            name: self.name,
            mode: Some(LockMode::permits(limit)),
        }
    }

    /// The key of one such resource, which the client locks, the admin inspects, and a closure of a layer returns.
    pub fn id(&self, id: impl Display) -> ResourceKey {
        self.of([id.to_string()])
    }

    /// The key of one such resource, with several components, in this order.
    pub fn of<P>(&self, components: P) -> ResourceKey
    where
        P: IntoIterator,
        P::Item: AsRef<str>,
    {
        ResourceKey::of(LockKey::from_parts(self.name, components), self.mode)
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// A resource of any family, as the extractors of [`key`](crate::key) take it: the layer's mode decides. It panics where
/// [`Resource::new`] does.
impl From<&'static str> for Resource {
    #[track_caller]
    fn from(name: &'static str) -> Self {
        Self {
            mode: None,
            ..Self::new(name)
        }
    }
}

impl From<&Self> for Resource {
    fn from(resource: &Self) -> Self {
        *resource
    }
}

impl LockMode {
    /// Why a resource whose callers take this mode by default is not to be locked in `asked`.
    pub(crate) fn mismatch(self, asked: Self) -> Option<&'static str> {
        if self.family() == asked.family() {
            let other_limit = self.family() == LockFamily::Permits && self != asked;
            return other_limit.then_some(
                "the resource is declared with another limit of permits: leave the limit to the resource",
            );
        }
        Some(match self.family() {
            LockFamily::Exclusive => {
                "the resource is locked exclusively: choose `LockMode::Reentrant` or `LockMode::Fair` for it, or declare it \
                 without `exclusive()`"
            }
            LockFamily::ReadWrite => {
                "the resource is read and written: choose `LockMode::Read` or `LockMode::Write` for it, or declare it with \
                 `Resource::exclusive()` or `Resource::permits()`"
            }
            LockFamily::Permits => {
                "the resource has permits: name no mode for it, or declare it without `permits()`"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn the_names_of_the_layers_are_no_resources() {
        for name in ["path", "idempotency"] {
            catch_unwind(|| Resource::new(name)).expect_err(name);
            catch_unwind(|| Resource::from(name)).expect_err(name);
        }
        for name in ["", "pat", "paths", "lock:path", "idempotency-key"] {
            assert_eq!(Resource::new(name).of([""; 0]).key().as_str(), name);
        }
    }
}

//! The guide: pages by task.
//!
//! | you want to | page |
//! |---|---|
//! | lock your first route | [`getting_started`] |
//! | decide what a request locks, and who may run beside it | [`keys_and_modes`] |
//! | choose how long to wait, and what a client gets | [`waiting`] |
//! | know what happens when a client hangs up, a handler takes too long, the server stops | [`cancellation`] |
//! | process a webhook or a payment once | [`webhooks`] |
//! | change rows of your own database once | [`exactly_once`] |
//! | know what can still go wrong | [`promises`] |
//! | connect to Redis, Sentinel, Cluster; TLS, ACL, managed services | [`deployments`] |
//! | see who holds and who waits, live | [`console`] |
//! | test your service | [`testing`] |
//! | make it faster | [`tuning`] |
//! | come from Redisson, rslock, `SET NX` | [`migrating`] |
//! | run a command under a lock, or see who holds one, from a shell | [`lockctl`] |
//! | find a short answer | [`faq`] |

/// Links to items of the crate.
macro_rules! items {
    ($($($module:ident)::* $item:literal)*) => {
        concat!($("[`", $item, "`]: crate::", $(stringify!($module), "::",)* $item, "\n"),*)
    };
}

/// A page names an item of the crate as `[Item]`, and another page as `[text][page name]`. These definitions stand before the page's
/// own ones, which lead to docs.rs and to the files, so that both rustdoc and a viewer of the repository find items and pages.
macro_rules! pages {
    ($($(#[$tested:meta])? $page:ident $file:literal $($picture:literal)?)*) => {
        $(
            $(#[$tested])?
            #[doc = items! {
                store::redis "AclRules" "Confirm" layer "ConfirmedBy" "FencingToken" "IdempotencyLayer" "LockAdmin"
                "LockAdmin::force_unlock" "LockAdmin::inspect" "LockAdmin::locks" "LockAdmin::records"
                "LockAdmin::set_permits" "LockClient::admin" "LockClient::audit" "LockClient::events" "LockClient::leader"
                "LockClient::lock" "LockClient::lock_any" "LockClient::once" "LockClient::shutdown" "LockClient::snapshot"
                "LockClient::try_lock" client "LockClientBuilder" client "LockClientBuilder::announce"
                client "LockClientBuilder::namespace" client "LockClientBuilder::runtime" "LockError::Conflict"
                "LockError::Invalid" "LockError::Lost" "LockHandle" "LockHandle::lost"
                "LockMode::Fair" "LockMode::Read" "LockMode::Reentrant" "LockMode::Write" "LockMode::permits"
                "LockRequest::run_at_least" store "LockStore" "MemoryStore" "OnCancel::RunToCompletion" "OnLost::Abort"
                "Owner" store::redis "RedisStoreBuilder::response_timeout" "Rejection"
                "ReleaseOn::BodyEnd" "ReleaseOn::Head" store::redis "Replicas" "Resource" "idempotency::IdempotencyKey" "idempotency::Recording" "idempotency::key::cloud_events()" "idempotency::key::github()"
                "idempotency::key::shopify()" "idempotency::key::standard_webhooks()" "idempotency::key::stripe()" "layer"
            }]
            #[doc = "[page getting started]: crate::guide::getting_started"]
            #[doc = "[page keys and modes]: crate::guide::keys_and_modes"]
            #[doc = "[page waiting]: crate::guide::waiting"]
            #[doc = "[page webhooks]: crate::guide::webhooks"]
            #[doc = "[page exactly once]: crate::guide::exactly_once"]
            #[doc = "[page promises]: crate::guide::promises"]
            #[doc = "[page migrating]: crate::guide::migrating"]
            #[doc = "[page lockctl]: crate::guide::lockctl"]
            #[doc = ""]
            #[doc = include_str!($file)]
            $(#[doc = include_str!($picture)])?
            pub mod $page {}
        )*
    };
}

// The code of a page is tested where its features are on.
pages! {
    #[cfg(any(not(doctest), feature = "redis"))]
    getting_started "../docs/guide/getting_started.md" "../docs/two-requests.svg"
    keys_and_modes "../docs/guide/keys_and_modes.md"
    waiting "../docs/guide/waiting.md"
    cancellation "../docs/guide/cancellation.md"
    #[cfg(any(not(doctest), feature = "axum"))]
    webhooks "../docs/guide/webhooks.md"
    #[cfg(any(not(doctest), feature = "axum"))]
    exactly_once "../docs/guide/exactly_once.md"
    promises "../docs/guide/promises.md" "../docs/paused-holder.svg"
    #[cfg(any(not(doctest), feature = "redis-tls"))]
    deployments "../docs/guide/deployments.md"
    console "../docs/guide/console.md"
    testing "../docs/guide/testing.md"
    tuning "../docs/guide/tuning.md"
    migrating "../docs/guide/migrating.md"
    lockctl "../docs/lockctl.md"
    faq "../docs/guide/faq.md"
}

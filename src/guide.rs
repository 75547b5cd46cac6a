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

// The pages name them.
#[cfg(doc)]
use crate::*;

/// A page names the items of the crate as `[Item]`, and another page as `[text][page name]`. These definitions stand before the page's
/// own ones, which lead to the files, so that both rustdoc and a viewer of the repository find the pages.
macro_rules! pages {
    ($($page:ident $file:literal $($picture:literal)?)*) => {
        $(
            #[doc = "[page getting started]: crate::guide::getting_started"]
            #[doc = "[page keys and modes]: crate::guide::keys_and_modes"]
            #[doc = "[page waiting]: crate::guide::waiting"]
            #[doc = "[page webhooks]: crate::guide::webhooks"]
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

pages! {
    getting_started "../docs/guide/getting_started.md" "../docs/two-requests.svg"
    keys_and_modes "../docs/guide/keys_and_modes.md"
    waiting "../docs/guide/waiting.md"
    cancellation "../docs/guide/cancellation.md"
    webhooks "../docs/guide/webhooks.md"
    exactly_once "../docs/guide/exactly_once.md"
    promises "../docs/guide/promises.md" "../docs/paused-holder.svg"
    deployments "../docs/guide/deployments.md"
    console "../docs/guide/console.md"
    testing "../docs/guide/testing.md"
    tuning "../docs/guide/tuning.md"
    migrating "../docs/guide/migrating.md"
    lockctl "../docs/lockctl.md"
    faq "../docs/guide/faq.md"
}

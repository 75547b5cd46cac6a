//! The guide is in `docs`, for readers of the repository. Here its code is tested.

macro_rules! pages {
    ($($page:ident)*) => {
        $(
            #[doc = include_str!(concat!("../docs/guide/", stringify!($page), ".md"))]
            mod $page {}
        )*
    };
}

pages! {
    cancellation console deployments exactly_once faq getting_started keys_and_modes migrating promises testing tuning
    waiting webhooks
}

#[doc = include_str!("../docs/lockctl.md")]
mod lockctl {}

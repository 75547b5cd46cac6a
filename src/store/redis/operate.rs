//! The operator's side: who holds and who waits, what is kept, what weakens the deployment, which rights a user needs.

pub(super) mod acl;
mod admin;
pub(super) mod audit;
mod listing;

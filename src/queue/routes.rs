//! The routes of the present holders, for the entry of the process in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Queues;

impl Queues {
    /// The routes of the holds of this process by the number of the hold: the oldest ones, at most `limit`. Each key is read at
    /// a slightly different instant.
    pub(crate) fn routes(&self, limit: usize) -> BTreeMap<u64, Arc<str>> {
        let mut routes = BTreeMap::new();
        self.shards.look_at_all(|_, state| {
            for hold in state.holds() {
                if let Some(route) = hold.route().template() {
                    routes.insert(hold.live.hold.id.number(), route.clone());
                }
                // Numbers rise with the grants.
                if routes.len() > limit {
                    routes.pop_last();
                }
            }
        });
        routes
    }
}

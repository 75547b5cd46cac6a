//! Owners that have asked and do not know yet what they get.

use crate::lock::Owner;

use super::lane::Waiter;

/// Whatever an owner asks for while something of its own is under way waits for that, in whatever mode: asked separately,
/// one of them would be granted and the others would wait for their own owner; and nested reads, which all bear the name of
/// the write above them, would be released by one another.
#[derive(Default)]
pub(super) struct Undecided(Vec<Twins>);

struct Twins {
    owner: Owner,
    /// How many requests of the owner, or releases of nested reads, are under way.
    under_way: usize,
    waiters: Vec<Waiter>,
}

impl Undecided {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Something of the owner is under way.
    pub(super) fn begin(&mut self, owner: &Option<Owner>) {
        let Some(owner) = owner else { return };
        match self.0.iter_mut().find(|twins| twins.owner == *owner) {
            Some(twins) => twins.under_way += 1,
            None => {
                // Nearly always the only one.
                self.0.reserve_exact(1);
                self.0.push(Twins {
                    owner: owner.clone(),
                    under_way: 1,
                    waiters: Vec::new(),
                });
            }
        }
    }

    /// What [`Undecided::begin`] began is decided; when that was the last of it, all who waited for it are returned.
    pub(super) fn end(&mut self, owner: &Option<Owner>) -> Vec<Waiter> {
        let Some(owner) = owner else {
            return Vec::new();
        };
        let Some(place) = self.0.iter().position(|twins| twins.owner == *owner) else {
            return Vec::new();
        };
        self.0[place].under_way -= 1;
        match self.0[place].under_way {
            0 => self.0.swap_remove(place).waiters,
            _ => Vec::new(),
        }
    }

    /// Those who wait for a decision of the owner; `None` if nothing of it is under way.
    pub(super) fn twins(&mut self, owner: &Option<Owner>) -> Option<&mut Vec<Waiter>> {
        let owner = owner.as_ref()?;
        let mut all = self.0.iter_mut();
        all.find(|twins| twins.owner == *owner)
            .map(|twins| &mut twins.waiters)
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        self.0.iter_mut().find_map(|twins| {
            let mut all = twins.waiters.iter();
            let place = all.position(|waiter| waiter.ticket == ticket)?;
            Some(twins.waiters.remove(place))
        })
    }
}

//! Tells all connections to one server that one of them got no answer.

use crate::sync::Mutex;

/// Starts a probe of every connection to one server when one of them gets no answer: the cause, such as a network that
/// drops packets, may affect the others.
#[derive(Default)]
pub(super) struct Suspicion {
    /// One probe for each connection. The mutex protects the list, to which probes are only added.
    probes: Mutex<Vec<Probe>>,
}

type Probe = Box<dyn Fn() + Send>;

impl Suspicion {
    /// `probe` begins to probe a connection, and does not wait for the result.
    pub(super) fn on_raised(&self, probe: impl Fn() + Send + 'static) {
        self.probes.lock().push(Box::new(probe));
    }

    /// Starts every probe: a connection got no answer.
    pub(super) fn raise(&self) {
        for probe in self.probes.lock().iter() {
            probe();
        }
    }
}

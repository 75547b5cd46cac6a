//! What the connections to one server tell each other.

use crate::sync::Mutex;

/// Has all connections to one server probed when one of them gets no answer: what silences one of them, such as a network
/// that drops what is sent, may have silenced the others.
#[derive(Default)]
pub(super) struct Suspicion {
    /// One for each connection. They are only added.
    probes: Mutex<Vec<Probe>>,
}

type Probe = Box<dyn Fn() + Send>;

impl Suspicion {
    /// `probe` begins to probe a connection, and does not wait for the result.
    pub(super) fn on_raised(&self, probe: impl Fn() + Send + 'static) {
        self.probes.lock().push(Box::new(probe));
    }

    /// A connection got no answer.
    pub(super) fn raise(&self) {
        for probe in self.probes.lock().iter() {
            probe();
        }
    }
}

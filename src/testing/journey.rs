//! The faults of one call.

use std::time::Duration;

use super::Fault;
use super::server::ServerState;

/// The delays and faults of a call, drawn before it is sent.
pub(super) struct Journey {
    pub(super) there: Duration,
    pub(super) back: Duration,
    /// How long the caller waits for an answer that was lost.
    pub(super) timeout: Duration,
    /// `None`: no fault.
    pub(super) fate: Option<Fate>,
    /// The delay of a late request.
    pub(super) late: Duration,
    /// The length of the outage, if the connection breaks.
    pub(super) outage: Duration,
    /// A fault of the store during the call: `Vanished` or `Flushed`.
    pub(super) disaster: Option<Fault>,
}

/// A fault of the call itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    RequestLost,
    ReplyLost,
    Late,
    Twice,
    Busy,
    /// The connection breaks before the request has arrived.
    RequestCut,
    /// The connection breaks before the answer has arrived.
    ReplyCut,
}

impl Journey {
    pub(super) fn draw(state: &mut ServerState) -> Self {
        let (random, faults) = (&mut state.random, &state.faults);
        let mut strikes = |fault| faults.strikes(fault, random);
        let disaster = [Fault::Flushed, Fault::Vanished]
            .into_iter()
            .find(|fault| strikes(*fault));
        let fate = [
            (Fault::RequestLost, Fate::RequestLost),
            (Fault::ReplyLost, Fate::ReplyLost),
            (Fault::Late, Fate::Late),
            (Fault::Twice, Fate::Twice),
            (Fault::Busy, Fate::Busy),
            (Fault::Disconnected, Fate::RequestCut),
        ]
        .into_iter()
        .find_map(|(fault, fate)| strikes(fault).then_some(fate));
        let is_slow = strikes(Fault::Slow);
        let fate = match fate {
            Some(Fate::RequestCut) if random.bool() => Some(Fate::ReplyCut),
            fate => fate,
        };
        if is_slow {
            state.tally.hit(Fault::Slow);
        }
        let delay = if is_slow {
            faults.delay
        } else {
            Duration::ZERO
        };
        let mut part = |of: Duration| of.mul_f64(random.f64());
        Self {
            there: part(delay),
            back: part(delay),
            timeout: faults.timeout,
            fate,
            late: faults.timeout + part(faults.lateness.saturating_sub(faults.timeout)),
            outage: part(faults.outage),
            disaster,
        }
    }
}

//! The faults of one call.

use std::time::Duration;

use super::Fault;
use super::server::ServerState;

/// The delays and faults of a call, drawn before it is sent.
pub(super) struct CallPlan {
    pub(super) there: Duration,
    pub(super) back: Duration,
    /// How long the caller waits for an answer that was lost.
    pub(super) timeout: Duration,
    /// `None`: no fault.
    pub(super) fault: Option<CallFault>,
    /// The delay of a late request.
    pub(super) late: Duration,
    /// The length of the outage, if the connection breaks.
    pub(super) outage: Duration,
    /// A fault of the store during the call: `Vanished` or `Flushed`.
    pub(super) data_loss: Option<Fault>,
}

/// A fault of the call itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFault {
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

impl CallPlan {
    pub(super) fn draw(state: &mut ServerState) -> Self {
        let (random, faults) = (&mut state.random, &state.faults);
        let mut strikes = |fault| faults.strikes(fault, random);
        let data_loss = [Fault::Flushed, Fault::Vanished]
            .into_iter()
            .find(|fault| strikes(*fault));
        let fault = [
            (Fault::RequestLost, CallFault::RequestLost),
            (Fault::ReplyLost, CallFault::ReplyLost),
            (Fault::Late, CallFault::Late),
            (Fault::Twice, CallFault::Twice),
            (Fault::Busy, CallFault::Busy),
            (Fault::Disconnected, CallFault::RequestCut),
        ]
        .into_iter()
        .find_map(|(fault, call_fault)| strikes(fault).then_some(call_fault));
        let is_slow = strikes(Fault::Slow);
        let fault = match fault {
            Some(CallFault::RequestCut) if random.bool() => Some(CallFault::ReplyCut),
            fault => fault,
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
            fault,
            late: faults.timeout + part(faults.lateness.saturating_sub(faults.timeout)),
            outage: part(faults.outage),
            data_loss,
        }
    }
}

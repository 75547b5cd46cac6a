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
    /// A fault of the call itself; `None`: no fault. Of `Disconnected`, the connection breaks before the request has arrived.
    pub(super) fault: Option<Fault>,
    /// The connection breaks before the answer has arrived.
    pub(super) is_reply_cut: bool,
    /// The delay of a late request.
    pub(super) late: Duration,
    /// The length of the outage, if the connection breaks.
    pub(super) outage: Duration,
    /// A fault of the store during the call: `Vanished` or `Flushed`.
    pub(super) data_loss: Option<Fault>,
}

impl CallPlan {
    pub(super) fn draw(state: &mut ServerState) -> Self {
        let (random, faults) = (&mut state.random, &state.faults);
        let mut strikes = |fault| faults.strikes(fault, random);
        let of_data = [Fault::Flushed, Fault::Vanished];
        let data_loss = of_data.into_iter().find(|fault| strikes(*fault));
        let of_calls = [
            Fault::RequestLost,
            Fault::ReplyLost,
            Fault::Late,
            Fault::Twice,
            Fault::Busy,
            Fault::Disconnected,
        ];
        let fault = of_calls.into_iter().find(|fault| strikes(*fault));
        let is_slow = strikes(Fault::Slow);
        let is_reply_cut = fault == Some(Fault::Disconnected) && random.bool();
        let mut delay = Duration::ZERO;
        if is_slow {
            state.tally.hit(Fault::Slow);
            delay = faults.delay;
        }
        let mut part = |of: Duration| of.mul_f64(random.f64());
        Self {
            there: part(delay),
            back: part(delay),
            timeout: faults.timeout,
            fault: fault.filter(|_| !is_reply_cut),
            is_reply_cut,
            late: faults.timeout + part(faults.lateness.saturating_sub(faults.timeout)),
            outage: part(faults.outage),
            data_loss,
        }
    }
}

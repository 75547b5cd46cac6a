//! How [`IdempotencyLayer`] treats a request.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;

use super::IdempotencyLayer;
use super::admission::{RecordTerms, route};
use crate::client::LockClient;
use crate::error::BoxError;
use crate::key::KeyExtractor;
use crate::layer::{
    Admission, Claim, Handling, OnCancel, OverloadDelay, Protocol, Refusal, RejectionKind,
    Responder, ResponseBody, Served, Unconfirmed, confirm, confirmed, unless_lost,
};
use crate::store::Record;
use crate::telemetry::{idempotent_request, idempotent_response};

impl<K, B, R> Protocol<B, R> for IdempotencyLayer<K>
where
    K: KeyExtractor + 'static,
    B: Body<Data: Send> + From<Bytes> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    type Terms = RecordTerms;
    /// With its record, if it is to be recorded.
    type Handled = (Response<ResponseBody<R>>, Option<Record>);

    async fn admit(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<Admission<B, RecordTerms>, Refusal> {
        if !self.applies_to(parts) {
            return Ok(Admission::Pass(body));
        }
        let admission = self.replay_or_claim(parts, body).await;
        let outcome = match &admission {
            Ok(Admission::Pass(_)) => return admission,
            Ok(Admission::Answer(_)) => "replayed",
            Ok(Admission::Run(..)) => "executed",
            Err(_) => "refused",
        };
        idempotent_request(&route(parts), outcome);
        admission
    }

    fn handle<E: Send>(
        &self,
        Claim { guard, terms }: &Claim<RecordTerms>,
        calling: impl Future<Output = Result<Response<R>, E>> + Send,
    ) -> impl Future<Output = Handling<Self::Handled, E>> + Send {
        let fingerprint = terms.fingerprint;
        unless_lost(guard, async move {
            let response = calling.await?;
            let recorded = self.settings.record_response(response, fingerprint);
            Ok(recorded.await)
        })
    }

    async fn finish<E: Send>(
        &self,
        Claim { guard, terms }: Claim<RecordTerms>,
        _: &Method,
        handled: Handling<Self::Handled, E>,
    ) -> Result<Served<R, E>, Unconfirmed> {
        let result = handled.inspect_err(|_| {
            idempotent_response(&terms.route, "not_recorded");
        })?;
        let (result, record) = match result {
            Ok((response, record)) => (Ok(response), record),
            Err(error) => (Err(error), None),
        };
        let has_record = record.is_some();
        let confirmation = confirm(self.settings.confirm, guard, record).await;
        let outcome = match (has_record, &confirmation) {
            (false, _) => "not_recorded",
            (true, Ok(_)) => "recorded",
            (true, Err(_)) => "unknown",
        };
        idempotent_response(&terms.route, outcome);
        self.settings.hold_times.add(terms.granted.elapsed());
        Ok(confirmed(result, confirmation?))
    }

    fn client(&self) -> &LockClient {
        &self.client
    }

    fn responder(&self) -> &Responder {
        &self.settings.responder
    }

    fn on_cancel(&self) -> OnCancel {
        self.settings.on_cancel
    }

    fn overload_delay(&self) -> (&OverloadDelay, Duration) {
        (&self.settings.overload_delay, self.settings.wait)
    }

    fn refused(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Rejection(rejection) if rejection.kind() == RejectionKind::InProgress => {
                let after = self.settings.hold_times.retry_after(rejection.cause());
                rejection.with_retry_after(after).into()
            }
            refusal => refusal,
        }
    }
}

//! How [`IdempotencyLayer`] treats a request.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;

use super::IdempotencyLayer;
use super::admission::{RecordTerms, route};
use crate::error::BoxError;
use crate::layer::{
    Claim, Handling, NotConfirmed, Protocol, Rejection, ResponseBody, ServeSettings, Served,
    Unclaimed, confirm, confirmed, unless_lost,
};
use crate::store::Record;
use crate::telemetry::{idempotent_request, idempotent_response};

impl<B, R> Protocol<B, R> for IdempotencyLayer
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    type ClaimData = RecordTerms;
    /// With its record, if it is to be recorded.
    type Handled = (Response<ResponseBody<R>>, Option<Record>);

    async fn admit(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<(B, Claim<RecordTerms>), Unclaimed<B>> {
        if !self.applies_to(parts) {
            return Err(Unclaimed::Pass(body));
        }
        let claimed = self.replay_or_claim(parts, body).await;
        let outcome = match &claimed {
            Ok(_) => "executed",
            Err(Unclaimed::Pass(_)) => return claimed,
            Err(Unclaimed::Answer(answer)) if answer.extensions().get::<Rejection>().is_none() => {
                "replayed"
            }
            Err(_) => "refused",
        };
        idempotent_request(&route(parts), outcome);
        claimed
    }

    fn handle<E: Send>(
        &self,
        Claim { guard, data: terms }: &Claim<RecordTerms>,
        calling: impl Future<Output = Result<Response<R>, E>> + Send,
    ) -> impl Future<Output = Handling<Self::Handled, E>> + Send {
        let fingerprint = terms.fingerprint;
        unless_lost(Some(guard), async move {
            let response = calling.await?;
            let recorded = self.settings.record_response(response, fingerprint);
            Ok(recorded.await)
        })
    }

    async fn finish<E: Send>(
        &self,
        Claim { guard, data: terms }: Claim<RecordTerms>,
        _: &Method,
        handled: Handling<Self::Handled, E>,
    ) -> Result<Served<R, E>, NotConfirmed> {
        let result = handled.inspect_err(|_| {
            idempotent_response(&terms.route, "not_recorded");
        })?;
        let (mut result, record) = match result {
            Ok((response, record)) => {
                (Ok(response), record.map(|record| record.scope(terms.scope)))
            }
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
        self.settings.serve.hold_times.add(terms.granted.elapsed());
        let confirmation = confirmation?;
        if let Ok(response) = &mut result {
            confirmed(response, confirmation);
        }
        Ok(result)
    }

    fn settings(&self) -> &ServeSettings {
        &self.settings.serve
    }
}

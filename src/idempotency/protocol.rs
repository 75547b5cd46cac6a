//! How [`IdempotencyLayer`] treats a request.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;
use tokio::time::Instant;

use super::IdempotencyLayer;
use super::admission::{RecordTerms, route};
use crate::error::BoxError;
use crate::layer::{
    Claim, Confirmation, Handling, LockTiming, NotConfirmed, Protocol, Rejection, ResponseBody,
    ServeSettings, Served, Unclaimed, confirm, unless_lost, whole,
};
use crate::limits::CONFIRMATION;
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
        let began = Instant::now();
        let (mut result, record) = match handled {
            Ok(Ok((response, record))) => {
                let scoped = record.map(|record| record.scope(terms.scope.clone()));
                (Ok(response), scoped)
            }
            Ok(Err(error)) => (Err(error), None),
            Err(NotConfirmed) => {
                drop(guard);
                idempotent_response(&terms.route, "not_recorded");
                return self.answered_by_record(&terms).await.ok_or(NotConfirmed);
            }
        };
        let value = record.as_ref().map(|record| record.value.clone());
        let confirmation = confirm(self.settings.confirm, guard, record).await;
        let outcome = match (&value, &confirmation) {
            (None, _) => "not_recorded",
            (Some(_), Ok(_)) => "recorded",
            (Some(_), Err(_)) => "unknown",
        };
        idempotent_response(&terms.route, outcome);
        let held = terms.granted.elapsed();
        self.settings.serve.hold_times.add(&terms.route, held);
        let Ok(by) = confirmation else {
            return self.answered_by_record(&terms).await.ok_or(NotConfirmed);
        };
        if let (Some(value), Confirmation::Store) = (value, by) {
            let (local, retention) = (&self.settings.local, self.settings.retention);
            local.recorded(&terms.name, value, began, retention);
        }
        if let Ok(response) = &mut result {
            LockTiming::released(terms.waited, held, by).put(response);
        }
        Ok(result)
    }

    fn settings(&self) -> &ServeSettings {
        &self.settings.serve
    }
}

impl IdempotencyLayer {
    /// The answer to a request whose lock was lost, or whose end the store did not confirm: the record, if there is one. It is of the
    /// request that has run in its place, or its own that was stored late.
    async fn answered_by_record<R, E>(&self, terms: &RecordTerms) -> Option<Served<R, E>> {
        let until = Instant::now() + CONFIRMATION;
        let record = self.look_up(&terms.name, terms.fingerprint, until).await;
        let replay = record.ok().flatten()?;
        Some(Ok(replay.map(|body| ResponseBody::local(whole(body)))))
    }
}

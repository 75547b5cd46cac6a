//! How [`IdempotencyLayer`] treats a request.

use std::pin::{Pin, pin};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::Body;
use tokio::time::Instant;

use super::IdempotencyLayer;
use super::admission::RecordContext;
use crate::error::{BoxError, LockError};
use crate::layer::{
    Claim, Confirm, FinalResponse, Head, LockTiming, ModePolicy, NotAdmitted, Protocol, Rejection,
    ResponseBody, ServeSettings, confirm, mode, under, unless_lost, whole,
};
use crate::limits::{self, CONFIRMATION};
use crate::lock::LockMode;
use crate::telemetry::{Route, idempotent_request, idempotent_response};

impl<B, R> Protocol<B, R> for IdempotencyLayer
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Context = RecordContext;

    async fn admit(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> Result<(B, Claim<RecordContext>), NotAdmitted<B>> {
        if mode::by_method().mode(parts) != Some(LockMode::Write) {
            return Err(NotAdmitted::Bypass(body));
        }
        let claimed = self.replay_or_claim(parts, body, route).await;
        let outcome = match &claimed {
            Ok(_) => "executed",
            Err(NotAdmitted::Bypass(_)) => return claimed,
            Err(NotAdmitted::Answer(answer))
                if answer.extensions().get::<Rejection>().is_none() =>
            {
                "replayed"
            }
            Err(_) => "refused",
        };
        idempotent_request(route, outcome);
        claimed
    }

    async fn run<E: Send>(
        &self,
        Claim {
            guard,
            mut timed,
            context,
        }: Claim<RecordContext>,
        Head { route, .. }: &Head,
        calling: Pin<Box<impl Future<Output = Result<Response<R>, E>> + Send>>,
    ) -> Result<FinalResponse<R, E>, LockError> {
        let handled = {
            let handling = pin!(async {
                let response = calling.await?;
                Ok(self.settings.record_response(response, &context).await)
            });
            under(&guard, unless_lost(Some(&guard), handling)).await
        };
        let began = Instant::now();
        let (mut result, record) = match handled {
            Ok(Ok((response, record))) => (Ok(response), record),
            Ok(Err(error)) => (Err(error), None),
            Err(lost) => {
                drop(guard);
                timed.end();
                idempotent_response(route, "not_recorded");
                return self.answered_by_record(&context, lost).await;
            }
        };
        let value = record.as_ref().map(|record| record.value.clone());
        let confirmation = confirm(Confirm::Strict, guard, record).await;
        timed.end();
        let outcome = match (&value, &confirmation) {
            (None, _) => "not_recorded",
            (Some(_), Ok(_)) => "recorded",
            (Some(_), Err(_)) => "unknown",
        };
        idempotent_response(route, outcome);
        let by = match confirmation {
            Ok(by) => by,
            Err(error) => return self.answered_by_record(&context, error).await,
        };
        if let Some(value) = value {
            let until = limits::after(began, self.settings.retention());
            self.settings.local.remember(&context.name, value, until);
        }
        if let Ok(response) = &mut result {
            LockTiming::of(&mut timed, Some(by)).put(response);
        }
        Ok(result)
    }

    fn settings(&self) -> &ServeSettings {
        &self.settings.serve
    }
}

impl IdempotencyLayer {
    /// The answer to a request whose lock was lost, or whose end the store did not confirm: the record, if there is one. It is of the
    /// request that has run in its place, or its own that was stored late. Without one it is `error`.
    async fn answered_by_record<R, E>(
        &self,
        context: &RecordContext,
        error: LockError,
    ) -> Result<FinalResponse<R, E>, LockError> {
        let until = Instant::now() + CONFIRMATION;
        let record = self
            .look_up(&context.name, context.fingerprint, until, |_| ())
            .await;
        let replay = record.ok().flatten().ok_or(error)?;
        Ok(Ok(replay.map(|body| ResponseBody::local(whole(body)))))
    }
}

//! The record of requests, runs and answers.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use http::response::Parts;
use http::{HeaderMap, StatusCode};
use tower_distributed_lock::{Rejection, RejectionKind};

use super::super::checked_stores::CheckedStores;
use super::super::log::Log;

const REPLAYED: &str = "idempotent-replayed";

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// A different number for each request.
    pub(super) number: u64,
    pub(super) key: &'static str,
    pub(super) body: &'static str,
}

/// An answer to a sender.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The handler's body contains the run, so that no two are equal.
    pub(super) body: Bytes,
    pub(super) rejection: Option<RejectionKind>,
}

impl Answer {
    pub(super) fn new(parts: &Parts, body: Bytes) -> Self {
        Self {
            status: parts.status,
            headers: parts.headers.clone(),
            body,
            rejection: parts.extensions.get().map(Rejection::kind),
        }
    }

    /// The answer as it was recorded; `None` if this is not a replay.
    fn original(&self) -> Option<Self> {
        let mut original = self.clone();
        let replayed = original.headers.remove(REPLAYED)?;
        (replayed == "true").then_some(original)
    }

    fn is_as(&self, other: &Self) -> bool {
        self.status == other.status && self.headers == other.headers && self.body == other.body
    }
}

/// A call of the handler.
#[derive(Debug)]
struct Run {
    request: Sent,
    /// `None`: it has not ended, or never will.
    answer: Option<Answer>,
    is_final: bool,
}

pub(super) struct Runs {
    log: Arc<Log>,
    checked_stores: Arc<CheckedStores>,
    /// Whether the promise holds that recorded work is not repeated.
    not_again: bool,
    sent: Mutex<Vec<Sent>>,
    runs: Mutex<Vec<Run>>,
}

impl Runs {
    pub(super) fn new(log: Arc<Log>, checked_stores: Arc<CheckedStores>, not_again: bool) -> Self {
        Self {
            log,
            checked_stores,
            not_again,
            sent: Mutex::default(),
            runs: Mutex::default(),
        }
    }

    /// Records that a request is sent.
    pub(super) fn send(&self, key: &'static str, body: &'static str) -> Sent {
        let mut sent = self.sent.lock().unwrap();
        let number = sent.len() as u64;
        sent.push(Sent { number, key, body });
        self.log
            .note(|| format!("request {number}: {key} with {body}"));
        sent[number as usize]
    }

    /// Records that a handler begins to serve a request; returns the run.
    pub(super) fn begin(&self, request: u64) -> usize {
        let request = self.sent.lock().unwrap()[request as usize];
        if self.not_again && self.recorded(request.key).is_some() {
            let text = format!("{request:?} is served, and its key has a record");
            self.log.violated("S10", text);
        }
        let mut runs = self.runs();
        runs.push(Run {
            request,
            answer: None,
            is_final: false,
        });
        let run = runs.len() - 1;
        self.log.note(|| format!("run {run} of {request:?} begins"));
        run
    }

    /// Records that the run is about to answer.
    pub(super) fn finish(&self, run: usize, answer: Answer, is_final: bool) {
        self.log
            .note(|| format!("run {run} ends: {}", answer.status));
        let run = &mut self.runs()[run];
        run.answer = Some(answer);
        run.is_final = is_final;
    }

    /// The body of the request that is recorded under `key`, if there is one.
    pub(super) fn recorded(&self, key: &str) -> Option<&'static str> {
        let runs = self.runs();
        let mut runs = runs.iter().filter(|run| run.request.key == key);
        runs.find(|run| self.is_recorded(run))
            .map(|run| run.request.body)
    }

    /// Checks an answer to a sender.
    pub(super) fn answered(&self, sent: Sent, answer: &Answer) {
        self.log.note(|| {
            let Answer {
                status, headers, ..
            } = answer;
            let replayed = headers.contains_key(REPLAYED);
            let kind = answer.rejection.map(RejectionKind::as_str);
            format!("{sent:?} is answered {status} {kind:?}, replayed: {replayed}")
        });
        match (answer.rejection, answer.original()) {
            (Some(kind), _) => self.refused(sent, kind),
            (None, Some(original)) => self.replayed(sent, &original),
            (None, None) => self.served(sent, answer),
        }
    }

    fn refused(&self, sent: Sent, kind: RejectionKind) {
        self.log.count(match kind {
            RejectionKind::KeyReused => "reused",
            RejectionKind::InProgress => "in progress",
            RejectionKind::Lost => "lost",
            RejectionKind::Unavailable => "unavailable",
            kind => {
                let text = format!("{sent:?} is refused as {kind:?}");
                return self.log.violated("S10", text);
            }
        });
        let recorded = self.recorded(sent.key);
        if kind == RejectionKind::KeyReused && recorded.is_none_or(|body| body == sent.body) {
            let text = format!("{sent:?} is said to be another than {recorded:?}");
            self.log.violated("S10", text);
        }
    }

    fn replayed(&self, sent: Sent, original: &Answer) {
        self.log.count("replayed");
        let runs = self.runs();
        let is_that = |run: &&Run| {
            let Sent { key, body, .. } = run.request;
            let same = run
                .answer
                .as_ref()
                .is_some_and(|first| first.is_as(original));
            key == sent.key && body == sent.body && same && self.is_recorded(run)
        };
        if !runs.iter().any(|run| is_that(&run)) {
            let text = format!("{sent:?} is answered as no other request was: {original:?}");
            self.log.violated("S10", text);
        }
    }

    fn served(&self, sent: Sent, answer: &Answer) {
        self.log.count("served");
        let runs = self.runs();
        let mut own = runs.iter().filter(|run| run.request.number == sent.number);
        let is_that = |run: &&Run| run.answer.as_ref().is_some_and(|own| own.is_as(answer));
        let Some(run) = own.find(is_that) else {
            let text = format!("{sent:?} is answered by another's run: {answer:?}");
            return self.log.violated("S10", text);
        };
        if run.is_final && !self.is_recorded(run) {
            let text = format!("{run:?} is confirmed, and not recorded");
            self.log.violated("S9", text);
        }
    }

    /// Checks at the end that no key had two records, and that only final answers were recorded.
    pub(super) fn close(&self) {
        let runs = self.runs();
        let is_vain = |run: &&Run| run.is_final && !self.is_recorded(run);
        for _ in runs.iter().filter(is_vain) {
            self.log.count("in vain");
        }
        let recorded: Vec<_> = runs.iter().filter(|run| self.is_recorded(run)).collect();
        for (n, run) in recorded.iter().enumerate() {
            if !run.is_final {
                let text = format!("{run:?} is recorded, and not final");
                self.log.violated("S10", text);
            }
            let mut others = recorded[..n].iter();
            if let Some(other) = others.find(|other| other.request.key == run.request.key) {
                let text = format!("{other:?} and {run:?} are recorded under one key");
                self.log.violated("S10", text);
            }
        }
    }

    /// Whether the run's answer is recorded: a record ends with the body of its answer.
    fn is_recorded(&self, run: &Run) -> bool {
        let Some(Answer { body, .. }) = &run.answer else {
            return false;
        };
        let book = self.checked_stores.only().book();
        book.records().any(|record| record.ends_with(body))
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap()
    }
}

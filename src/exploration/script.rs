//! A store whose questions a test receives, and answers when it likes.

use std::fmt::Debug;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::client::{LockClient, LockRequest};
use crate::error::{StoreError, StoreErrorKind};
use crate::guard::LockGuard;
use crate::lock::{Hold, LockKey};
use crate::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal, Unsupported,
    Wakeups,
};

/// The store. The first letter of a key is its partition.
pub(crate) struct ScriptedStore(mpsc::UnboundedSender<Question>);

/// The test's side of the store. Without an answer, a question hangs.
pub(crate) struct Script {
    questions: mpsc::UnboundedReceiver<Question>,
    began: Instant,
}

/// A question of a client. The answer to [`LockStore::acquire_several`] is that of its default.
#[derive(Debug)]
enum Question {
    Acquire(Attempt, Reply<Outcome>),
    Renew(Vec<Renewal>, Reply<Vec<HoldStatus>>),
    Release(Hold, Reply<Released>),
    Withdraw(Attempt, bool, Reply<()>),
    Subscribe(Attempt, Reply<Wakeups>),
}

/// The way of an answer.
#[derive(Debug)]
pub(crate) struct Reply<T>(oneshot::Sender<Result<T, StoreError>>);

impl Script {
    /// The script of a store, which a client of it needs.
    pub(crate) fn new() -> (Self, ScriptedStore) {
        let (sender, questions) = mpsc::unbounded_channel();
        let began = Instant::now();
        (Self { questions, began }, ScriptedStore(sender))
    }

    /// A client with these hand-overs in a row, and the script of its store.
    pub(crate) fn client(handovers: u32) -> (Self, LockClient) {
        let (script, store) = Self::new();
        let locks = LockClient::builder(store).handovers(handovers);
        (script, locks.build())
    }

    /// Milliseconds since the script began.
    pub(crate) fn ms(&self) -> u128 {
        self.began.elapsed().as_millis()
    }

    /// Waits for the next question.
    async fn next(&mut self) -> Question {
        let asked = timeout(Duration::from_secs(60), self.questions.recv()).await;
        let asked = asked.expect("the client asks nothing more");
        asked.expect("the client is here")
    }

    /// Asserts that the client asks nothing for this time.
    pub(crate) async fn is_quiet(&mut self, time: Duration) {
        if let Ok(Some(asked)) = timeout(time, self.questions.recv()).await {
            panic!("after {} ms: {asked:?}", self.ms());
        }
    }

    pub(crate) async fn acquire(&mut self) -> (Attempt, Reply<Outcome>) {
        match self.next().await {
            Question::Acquire(attempt, reply) => (attempt, reply),
            other => panic!("it asks for no hold: {other:?}"),
        }
    }

    pub(crate) async fn renew(&mut self) -> (Vec<Renewal>, Reply<Vec<HoldStatus>>) {
        match self.next().await {
            Question::Renew(renewals, reply) => (renewals, reply),
            other => panic!("it renews and checks nothing: {other:?}"),
        }
    }

    /// The next renewals or checks; `None` if nothing is asked for this time.
    pub(crate) async fn renewed_before(
        &mut self,
        time: Duration,
    ) -> Option<(Vec<Renewal>, Reply<Vec<HoldStatus>>)> {
        timeout(time, self.renew()).await.ok()
    }

    pub(crate) async fn release(&mut self) -> (Hold, Reply<Released>) {
        match self.next().await {
            Question::Release(hold, reply) => (hold, reply),
            other => panic!("it releases nothing: {other:?}"),
        }
    }

    /// The attempt, and whether it went unanswered.
    pub(crate) async fn withdraw(&mut self) -> (Attempt, bool, Reply<()>) {
        match self.next().await {
            Question::Withdraw(attempt, unanswered, reply) => (attempt, unanswered, reply),
            other => panic!("it withdraws nothing: {other:?}"),
        }
    }

    pub(crate) async fn subscribe(&mut self) -> (Attempt, Reply<Wakeups>) {
        match self.next().await {
            Question::Subscribe(attempt, reply) => (attempt, reply),
            other => panic!("it does not subscribe: {other:?}"),
        }
    }

    /// The guard of a request that is granted.
    pub(crate) async fn grant(&mut self, request: LockRequest) -> LockGuard {
        let granting = async {
            let (_, reply) = self.acquire().await;
            reply.grant();
        };
        let (guard, ()) = tokio::join!(request.acquire(), granting);
        guard.expect("it is granted")
    }
}

impl<T: Debug> Reply<T> {
    pub(crate) fn send(self, answer: T) {
        self.0.send(Ok(answer)).expect("the client waits for it");
    }

    pub(crate) fn fail(self, kind: StoreErrorKind) {
        let error = StoreError::new(kind, "a script");
        self.0.send(Err(error)).expect("the client waits for it");
    }
}

impl Reply<Outcome> {
    pub(crate) fn grant(self) {
        self.send(Outcome::Granted { token: None });
    }

    /// Refuses it for longer than any poll.
    pub(crate) fn refuse(self) {
        self.refuse_for(Duration::from_secs(30));
    }

    pub(crate) fn refuse_for(self, retry_after: Duration) {
        self.send(Outcome::Refused { retry_after });
    }
}

impl Reply<Wakeups> {
    /// Subscribes. Each change of the signal is a wake-up, and its end that of the subscription.
    pub(crate) fn listens(self) -> watch::Sender<()> {
        let (signal, changes) = watch::channel(());
        self.send(Wakeups::new(changes, ()));
        signal
    }
}

impl ScriptedStore {
    async fn asked<T>(&self, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        // After the end of the test there is no answer.
        drop(self.0.send(question(Reply(reply))));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

impl LockStore for ScriptedStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.asked(|reply| Question::Acquire(attempt.clone(), reply))
            .await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.asked(|reply| Question::Renew(renewals.to_vec(), reply))
            .await
    }

    async fn release(&self, hold: &Hold, _: Option<&Record>) -> Result<Released, StoreError> {
        self.asked(|reply| Question::Release(hold.clone(), reply))
            .await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.asked(|reply| Question::Withdraw(attempt.clone(), unanswered, reply))
            .await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.asked(|reply| Question::Subscribe(attempt.clone(), reply))
            .await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        Ok(u16::from(key.as_str().as_bytes()[0]))
    }
}

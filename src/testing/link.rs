//! One process's connection to the store.

use tokio::sync::watch;

/// A connection that can break.
#[derive(Debug)]
pub(super) struct Link {
    line: watch::Sender<Line>,
}

/// How a connection is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Line {
    /// By chance; it mends by itself.
    broken: bool,
    /// By the test; it stays so.
    severed: bool,
    /// How many times it went down.
    cuts: u64,
}

impl Line {
    pub(super) fn is_up(self) -> bool {
        !self.broken && !self.severed
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let was_up = self.is_up();
        change(self);
        self.cuts += u64::from(was_up && !self.is_up());
    }
}

impl Link {
    pub(super) fn new(severed: bool) -> Self {
        Self {
            line: watch::Sender::new(Line {
                severed,
                ..Line::default()
            }),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.line.borrow().is_up()
    }

    pub(super) fn set_broken(&self, broken: bool) {
        self.line
            .send_modify(|line| line.change(|line| line.broken = broken));
    }

    pub(super) fn set_severed(&self, severed: bool) {
        self.line
            .send_modify(|line| line.change(|line| line.severed = severed));
    }

    /// Sees every change.
    pub(super) fn watch(&self) -> watch::Receiver<Line> {
        self.line.subscribe()
    }

    /// Resolves when the connection goes down after this call, or is down.
    pub(super) fn cut(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut line = self.line.subscribe();
        let cuts = line.borrow().cuts;
        async move {
            let cut = |line: &Line| line.cuts != cuts || !line.is_up();
            // The sender is gone only with the store.
            if line.wait_for(cut).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

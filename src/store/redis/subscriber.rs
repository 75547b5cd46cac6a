//! The task that owns the connection for wake-ups.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::channels::{Ear, Heard, Lost, Voice};
use super::sentinel::Departure;
use super::subscriptions::Shared;
use super::{failure, tls};
use crate::error::StoreError;

/// How often a quiet connection is asked whether it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The pause after the first failure to connect; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Connects, listens, and connects again, until the task is aborted.
    pub(super) async fn run(self: Arc<Self>) {
        // An earlier task may have ended with its runtime.
        self.disconnected();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            match self.open().await {
                Ok((voice, ear, departure)) => {
                    self.connected();
                    let Lost = self.serve(voice, ear, departure).await;
                    tracing::warn!("the connection to Redis that listens for wake-ups is replaced");
                    self.disconnected();
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis for wake-ups");
                    self.failed(error);
                }
            }
            if began.elapsed() > 2 * LONGEST_PAUSE + self.timeouts.connect {
                pause = FIRST_PAUSE;
            }
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn open(&self) -> Result<(Voice, Ear, Departure), StoreError> {
        let opening = async {
            let (client, departure) = self.station.locate().await?;
            let opened = self.channels.open(&client, self.timeouts).await;
            let (voice, ear) = opened.map_err(|error| {
                let failed = failure::no_connection(error);
                let server = client.get_connection_info().addr();
                self.station.failed(tls::at(server, failed))
            })?;
            Ok((voice, ear, departure))
        };
        timeout(self.timeouts.connect, opening)
            .await
            .unwrap_or_else(|_| Err(self.station.too_slow()))
    }

    async fn serve(&self, mut voice: Voice, mut ear: Ear, mut departure: Departure) -> Lost {
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.tell(&mut voice, &mut ear).await.is_err() {
                return Lost;
            }
            tokio::select! {
                heard = ear.next() => if self.take_in(heard).is_err() {
                    return Lost;
                },
                () = self.work.notified() => {}
                // A former master passes on what the present one tells it, but only while it follows it.
                () = departure.wait() => return Lost,
                _ = heartbeat.tick() => {
                    if self.meanwhile(&mut ear, voice.ping()).await.is_err() {
                        return Lost;
                    }
                }
            }
        }
    }

    /// Tells the server what it does not know yet.
    async fn tell(&self, voice: &mut Voice, ear: &mut Ear) -> Result<(), Lost> {
        loop {
            let difference = self.difference();
            if difference.join.is_empty() && difference.leave.is_empty() {
                return Ok(());
            }
            if !difference.join.is_empty() {
                let answers = self.meanwhile(ear, voice.join(&difference.join)).await?;
                for (name, answer) in difference.join.iter().zip(answers) {
                    self.joined(name, answer);
                }
            }
            if !difference.leave.is_empty() {
                self.meanwhile(ear, voice.leave(&difference.leave)).await?;
                for name in &difference.leave {
                    self.left(name);
                }
            }
        }
    }

    /// Waits for an answer of the server, and takes in what it says meanwhile.
    async fn meanwhile<T>(
        &self,
        ear: &mut Ear,
        question: impl Future<Output = Result<T, Lost>>,
    ) -> Result<T, Lost> {
        let mut answer = pin!(timeout(self.timeouts.response, question));
        loop {
            tokio::select! {
                answer = &mut answer => {
                    // What came before the answer is taken in before the answer, too.
                    while let Some(heard) = ear.heard() {
                        self.take_in(heard)?;
                    }
                    return answer.unwrap_or(Err(Lost));
                }
                heard = ear.next() => self.take_in(heard)?,
            }
        }
    }

    fn take_in(&self, heard: Option<Heard>) -> Result<(), Lost> {
        match heard {
            Some(Heard::Message(channel)) => self.wake(&channel),
            Some(Heard::Gone(channel)) if !self.gone(&channel) => return Err(Lost),
            Some(Heard::Gone(_)) => {}
            None => return Err(Lost),
        }
        Ok(())
    }
}

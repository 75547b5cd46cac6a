//! The number of hand-overs inside a process before others get their turn. The default is chosen from these
//! figures.

use anyhow::Result;

use super::hot::{Figures, WAITERS, measure, show};
use crate::Bench;
use crate::contender::Contender;
use crate::server::Server;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let contenders = Contender::PASSING;
    let server = Server::start().await?;
    for processes in [1, 2, 4] {
        let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
        for repetition in 0..bench.repetitions(3) {
            bench.report.progress(&format!(
                "hand-overs in a row, {processes} × {WAITERS}, repetition {}",
                repetition + 1
            ));
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                measure(bench, &server, *contender, processes, figures).await?;
            }
        }
        show(bench, processes, &contenders, &figures);
    }
    Ok(())
}

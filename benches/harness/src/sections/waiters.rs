//! Throughput on one key against the number of waiters, as a table and a plot.

use anyhow::Result;
use plotters::style::RGBColor;

use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
use crate::plot::{self, Chart, Curve};
use crate::samples::{Rate, median};
use crate::server::Server;

const CONTENDERS: [(Contender, RGBColor); 6] = [
    (Contender::Unconfirmed, RGBColor(0x0b, 0x7a, 0x75)),
    (Contender::Confirmed, RGBColor(0x19, 0xb5, 0x9f)),
    (Contender::Redisson, RGBColor(0xd6, 0x55, 0x0f)),
    (Contender::Rslock, RGBColor(0x7b, 0x5e, 0xa7)),
    (Contender::Rlock, RGBColor(0x8a, 0x8a, 0x8a)),
    (Contender::AsyncRedisLock, RGBColor(0xb8, 0xa0, 0x60)),
];

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let mut curves = Vec::new();
    for (contender, color) in CONTENDERS {
        let mut crowd = Crowd::start(contender, server.url(), 1).await?;
        crowd.run(&Load::on("warm", 4, Until::Rounds(1))).await?;
        // Polling crates need seconds where others need milliseconds.
        let slow = matches!(
            contender,
            Contender::Rlock | Contender::AsyncRedisLock | Contender::Rslock
        );
        let (most, bursts) = if slow {
            (64, 1)
        } else {
            (256, bench.repetitions(9))
        };
        let mut points = Vec::new();
        for waiters in [1, 4, 16, 64, 256]
            .into_iter()
            .filter(|waiters| *waiters <= most)
        {
            bench
                .report
                .progress(&format!("a burst of {waiters}: {}", contender.name()));
            let mut rates = Vec::new();
            for _ in 0..bursts {
                rates.push(
                    crowd
                        .run(&Load::on("burst", waiters, Until::Rounds(1)))
                        .await?
                        .rate(),
                );
            }
            points.push((waiters as f64, median(&rates)));
        }
        let shown = points
            .iter()
            .map(|(waiters, rate)| format!("{waiters}: {}", Rate(*rate)));
        bench.report.note(&format!(
            "    {:<22} {}",
            contender.name(),
            shown.collect::<Vec<_>>().join(", ")
        ));
        curves.push(Curve {
            name: contender.name(),
            color,
            points,
        });
    }
    if !bench.quick {
        let chart = Chart {
            caption: "Critical sections per second on one key, one process, all at once",
            x: ("waiters", 1.0..300.0),
            y: ("sections per second", 5.0..200_000.0),
            curves: &curves,
        };
        plot::write(&[chart], "throughput.svg")?;
    }
    Ok(())
}

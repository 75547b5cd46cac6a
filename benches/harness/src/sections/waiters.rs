//! Throughput on one key against the number of waiters, as a table and a plot.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
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

struct Curve {
    contender: Contender,
    color: RGBColor,
    /// Waiters, and sections per second.
    points: Vec<(f64, f64)>,
}

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
            contender,
            color,
            points,
        });
    }
    if !bench.quick {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../throughput.svg");
        // Its errors borrow the drawing, so they are converted to text.
        draw(&curves, &path).map_err(|error| anyhow!("{error}"))?;
    }
    Ok(())
}

fn draw(curves: &[Curve], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    const RATES: Range<f64> = 5.0..200_000.0;
    let area = SVGBackend::new(path, (860, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            "Critical sections per second on one key, one process, all at once",
            ("sans-serif", 18),
        )
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(76)
        .build_cartesian_2d((1.0..300.0).log_scale(), RATES.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("waiters")
        .y_desc("sections per second")
        .light_line_style(WHITE)
        .label_style(("sans-serif", 13))
        .draw()?;
    for curve in curves {
        let color = curve.color;
        chart
            .draw_series(
                LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)).point_size(3),
            )?
            .label(curve.contender.name())
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(3))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    Ok(())
}

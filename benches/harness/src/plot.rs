//! Plots with logarithmic axes.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// The size of one chart, in pixels.
const SIZE: (u32, u32) = (860, 480);

/// The figures of one contender.
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) color: RGBColor,
    pub(crate) points: Vec<(f64, f64)>,
}

/// One chart of a plot.
pub(crate) struct Chart<'a> {
    pub(crate) caption: &'a str,
    /// The name of an axis, and its range.
    pub(crate) x: (&'a str, Range<f64>),
    pub(crate) y: (&'a str, Range<f64>),
    pub(crate) curves: &'a [Curve],
}

/// Writes the charts, one below the other, to an SVG file beside RESULTS.md.
pub(crate) fn write(charts: &[Chart<'_>], file: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    // Its errors borrow the drawing, so they are converted to text.
    draw(charts, &path).map_err(|error| anyhow!("{error}"))
}

fn draw(charts: &[Chart<'_>], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let rows = u32::try_from(charts.len())?;
    let all = SVGBackend::new(path, (SIZE.0, SIZE.1 * rows)).into_drawing_area();
    all.fill(&WHITE)?;
    for (area, chart) in all.split_evenly((charts.len(), 1)).iter().zip(charts) {
        draw_one(area, chart)?;
    }
    all.present()?;
    Ok(())
}

fn draw_one(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    chart: &Chart<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let Chart {
        caption,
        x,
        y,
        curves,
    } = chart;
    let mut drawn = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(76)
        .build_cartesian_2d(x.1.clone().log_scale(), y.1.clone().log_scale())
        .map_err(|error| error.to_string())?;
    drawn
        .configure_mesh()
        .x_desc(x.0)
        .y_desc(y.0)
        .light_line_style(WHITE)
        .label_style(("sans-serif", 13))
        .draw()
        .map_err(|error| error.to_string())?;
    for curve in *curves {
        let color = curve.color;
        let line = LineSeries::new(curve.points.iter().copied(), color.stroke_width(2));
        drawn
            .draw_series(line.point_size(3))
            .map_err(|error| error.to_string())?
            .label(curve.name)
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(3))
            });
    }
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()
        .map_err(|error| error.to_string())?;
    Ok(())
}

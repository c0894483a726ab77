//! SVG plots.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::experiment::{Axis, Plot, Series};
use crate::row::Row;

const SIZE: (u32, u32) = (860, 520);

/// Distinguishable with red-green colour blindness (Okabe and Ito, 2008).
const COLORS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(240, 228, 66),
    RGBColor(130, 130, 130),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

struct Line<'a> {
    label: &'a str,
    points: Vec<(f64, f64)>,
    of_the_paper: bool,
}

/// Draws `plot` of `rows`; nothing if no row has its columns. Values that are not finite are left
/// out, because plotters would compute the ticks of an endless axis for ever.
pub(crate) fn draw(plot: &Plot, rows: &[Row], path: &Path) -> Result<()> {
    let lines: Vec<Line<'_>> = plot.series.iter().map(|series| line(plot, series, rows)).collect();
    if lines.iter().all(|line| line.of_the_paper || line.points.is_empty()) {
        return Ok(());
    }
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = range(all().map(|(x, _)| *x), &plot.x);
    let mut y = range(all().map(|(_, y)| *y), &plot.y);
    make_room_for_labels(&mut y, plot);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = match (plot.x.logarithmic, plot.y.logarithmic) {
        (false, false) => chart(&area, plot, &lines, x, y),
        (true, false) => chart(&area, plot, &lines, x.log_scale(), y),
        (false, true) => chart(&area, plot, &lines, x, y.log_scale()),
        (true, true) => chart(&area, plot, &lines, x.log_scale(), y.log_scale()),
    };
    drawn.map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn line<'a>(plot: &Plot, series: &'a Series, rows: &[Row]) -> Line<'a> {
    let of_rows = rows
        .iter()
        .filter_map(|row| Some((row.number(&plot.x.column)?, row.number(&series.column)?)))
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .filter(|(x, y)| (!plot.x.logarithmic || *x > 0.0) && (!plot.y.logarithmic || *y > 0.0));
    let of_the_paper = !series.paper.is_empty();
    let points = match of_the_paper {
        true => series.paper.iter().map(|point| (point[0], point[1])).collect(),
        false => of_rows.collect(),
    };
    Line { label: &series.label, points, of_the_paper }
}

/// From 0, or on a logarithmic axis from the smallest value, to a little above the largest.
fn range(values: impl Iterator<Item = f64> + Clone, axis: &Axis) -> Range<f64> {
    let largest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    let least = values.fold(f64::INFINITY, f64::min);
    match axis.logarithmic {
        true => least / 1.2..largest * 1.2,
        // The axis of a histogram need not begin at 0. A single point makes no range.
        false if least > largest / 3.0 && least < largest && !axis.column.is_empty() => {
            least..largest
        }
        false => 0.0..largest * 1.08,
    }
}

/// The box with the labels is at the top: more lines need more room.
fn make_room_for_labels(y: &mut Range<f64>, plot: &Plot) {
    let part = 0.06 * plot.series.len() as f64;
    y.end = match plot.y.logarithmic {
        true => y.end * (y.end / y.start).powf(part),
        false => y.end + part * (y.end - y.start),
    };
}

fn chart<X, Y>(
    area: &Area<'_>,
    plot: &Plot,
    lines: &[Line<'_>],
    x: X,
    y: Y,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(&plot.title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)?;
    // Ticks are round numbers except for the last bits of a float.
    let label = |value: &f64| ((value * 1e6).round() / 1e6).to_string();
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.04))
        .x_desc(&plot.x.label)
        .y_desc(&plot.y.label)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .draw()?;
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        let drawn = match line.of_the_paper {
            true => chart.draw_series(DashedLineSeries::new(
                line.points.iter().copied(),
                6,
                4,
                style,
            ))?,
            false => chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?,
        };
        drawn
            .label(line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        if line.points.len() < 40 {
            let dots = line.points.iter().map(|point| Circle::new(*point, 3, color.filled()));
            chart.draw_series(dots)?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const PLOTS: &str = r#"
        name = "t"
        title = "t"
        paper = ""
        table = []
        cases = []
        quick = []
        [[plot]]
        name = "linear"
        title = "t"
        x = { label = "x", column = "x" }
        y = { label = "y" }
        series = [{ label = "y", column = "y" }]
        [[plot]]
        name = "logarithmic"
        title = "t"
        x = { label = "x", column = "x", logarithmic = true }
        y = { label = "y", logarithmic = true }
        series = [{ label = "y", column = "y" }, { label = "paper", paper = [[1, 1], [2, 2]] }]
    "#;

    #[test]
    fn figures_that_are_not_finite_and_points_that_are_alone_are_plotted_to_an_end() {
        let experiment = Experiment::parse(PLOTS).expect("a description");
        let row = |x: f64, y: f64| {
            let mut row = Row::new();
            row.figure("x", x).figure("y", y);
            row
        };
        let infinite = [row(1.0, 3.0), row(2.0, f64::INFINITY), row(f64::NAN, 1.0), row(3.0, 0.0)];
        let folder = std::env::temp_dir().join(format!("equipoise-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (rows, drawn) in
            [(&infinite[..], true), (&infinite[..1], true), (&infinite[1..3], false)]
        {
            for plot in &experiment.plot {
                let path = folder.join("plot.svg");
                let _ = std::fs::remove_file(&path);
                draw(plot, rows, &path).expect("it is drawn");
                assert_eq!(path.exists(), drawn, "{}, {} rows", plot.name, rows.len());
            }
        }
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}

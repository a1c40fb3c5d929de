//! Plots as SVG that stands in the page. Colours are names here: the page's
//! style gives them their values, for light and for dark.

use super::html::{self, text};
use crate::report::shown;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::fmt::Write as _;

/// Size of a plot, in units that the page scales.
const SIZE: (u32, u32) = (760, 340);
/// Points of a line at most, as far as the eye can tell.
const POINTS_MAX: usize = 800;
/// Steps between a line's value and the frame.
const MARGIN: f64 = 1.08;
/// Lines told apart by colour; runs of a line are told apart by dashes.
pub const COLOURS: usize = 8;

/// Ink and grid, as the style knows them.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const MARK: RGBColor = RGBColor(3, 3, 3);

/// What an axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Seconds of a run, linear.
    Seconds,
    /// Something a second, linear from 0.
    Rate,
    /// MiB, linear from 0.
    Mebibytes,
    /// Nanoseconds, logarithmic.
    Time,
    /// Part of all, linear.
    Part,
    /// 1 / (1 − quantile), logarithmic.
    Percentile,
}

impl Axis {
    fn is_log(self) -> bool {
        matches!(self, Self::Time | Self::Percentile)
    }

    #[allow(clippy::cast_sign_loss)] // times are positive
    fn label(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.0}"),
            Self::Rate if value >= 1e6 => format!("{} M", short(value / 1e6)),
            Self::Rate if value >= 1e3 => format!("{} k", short(value / 1e3)),
            Self::Rate => short(value),
            Self::Mebibytes => format!("{} MiB", short(value)),
            Self::Time => tick(value),
            Self::Part => format!("{:.0} %", value * 100.0),
            Self::Percentile => {
                let digits = (value.log10().ceil() - 2.0).max(0.0) as usize;
                format!("{:.digits$} %", 100.0 * (1.0 - 1.0 / value))
            }
        }
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn tick(ns: f64) -> String {
    let (value, unit) = if ns < 1e3 {
        (ns, "ns")
    } else if ns < 1e6 {
        (ns / 1e3, "µs")
    } else if ns < 1e9 {
        (ns / 1e6, "ms")
    } else {
        (ns / 1e9, "s")
    };
    format!("{} {unit}", short(value))
}

/// One line.
pub struct Line {
    /// What it is called.
    pub label: String,
    /// Which colour.
    pub colour: usize,
    /// Which run: the second one is dashed.
    pub run: usize,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
    /// Each point is a measurement and is shown.
    pub dots: bool,
}

/// A whole plot.
pub struct Plot {
    /// Its name in the page, of letters and digits.
    pub id: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What there is to see, for who does not see it.
    pub description: String,
    /// Axes and what they say.
    pub x: (Axis, &'static str),
    /// Likewise.
    pub y: (Axis, &'static str),
    /// The lines.
    pub lines: Vec<Line>,
    /// A place on the x axis worth a mark, and its name.
    pub mark: Option<(f64, String)>,
}

/// Extent of an axis.
fn extent(axis: Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| value.is_finite()) {
        least = least.min(value);
        most = most.max(value);
    }
    if least > most {
        (least, most) = (1.0, 2.0);
    }
    match axis {
        Axis::Part => (0.0, 1.0),
        Axis::Percentile => (1.0, most.max(10.0)),
        Axis::Time => {
            let least = least.max(1.0);
            (least / MARGIN, (most * MARGIN).max(least * 2.0))
        }
        Axis::Seconds => (least.min(0.0), most.max(1.0)),
        Axis::Rate | Axis::Mebibytes => (0.0, (most * MARGIN).max(1.0)),
    }
}

/// A colour's stand-in: unlike any other, so that the style can find it.
fn colour(colour: usize, run: usize) -> RGBColor {
    RGBColor(10 + (colour % COLOURS) as u8, 20 + run as u8, 30)
}

/// As few points as show the same, always with the last ones, which matter most in a tail.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let tail = points.len().saturating_sub(POINTS_MAX / 4);
    points
        .iter()
        .enumerate()
        .filter(|(index, _)| index % step == 0 || *index >= tail)
        .map(|(_, &point)| point)
        .collect()
}

impl Plot {
    /// As a figure with its legend.
    pub fn figure(&self) -> Result<String, String> {
        let x = extent(self.x.0, self.xs());
        let y = extent(
            self.y.0,
            self.lines
                .iter()
                .flat_map(|line| line.points.iter().map(|point| point.1)),
        );
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let drawn = match (self.x.0.is_log(), self.y.0.is_log()) {
                (false, false) => self.draw(&root, x.0..x.1, y.0..y.1),
                (false, true) => self.draw(&root, x.0..x.1, (y.0..y.1).log_scale()),
                (true, false) => self.draw(&root, (x.0..x.1).log_scale(), y.0..y.1),
                (true, true) => self.draw(&root, (x.0..x.1).log_scale(), (y.0..y.1).log_scale()),
            };
            drawn.map_err(|error| format!("the plot {}: {error}", self.id))?;
            root.present()
                .map_err(|error| format!("the plot {}: {error}", self.id))?;
        }
        Ok(self.framed(&svg))
    }

    fn xs(&self) -> impl Iterator<Item = f64> {
        self.lines
            .iter()
            .flat_map(|line| line.points.iter().map(|point| point.0))
            .chain(self.mark.iter().map(|mark| mark.0))
    }

    fn draw<X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        x: X,
        y: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(root)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(46)
            .y_label_area_size(78)
            .build_cartesian_2d(x, y)?;
        let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let (x_axis, y_axis) = (self.x.0, self.y.0);
        chart
            .configure_mesh()
            .x_labels(8)
            .y_labels(6)
            .max_light_lines(0)
            .x_desc(self.x.1)
            .y_desc(self.y.1)
            .axis_style(INK)
            .bold_line_style(GRID)
            .label_style(font(13))
            .axis_desc_style(font(14))
            .x_label_formatter(&move |value: &f64| x_axis.label(*value))
            .y_label_formatter(&move |value: &f64| y_axis.label(*value))
            .draw()?;
        if let Some((at, _)) = &self.mark {
            let y = extent(
                y_axis,
                self.lines
                    .iter()
                    .flat_map(|line| line.points.iter().map(|point| point.1)),
            );
            chart.draw_series(LineSeries::new(
                [(*at, y.0), (*at, y.1)],
                MARK.stroke_width(1),
            ))?;
        }
        for line in &self.lines {
            let colour = colour(line.colour, line.run);
            let points = thin(&line.points);
            if line.dots {
                chart.draw_series(
                    points
                        .iter()
                        .map(|&point| Circle::new(point, 3, colour.filled())),
                )?;
            }
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        Ok(())
    }

    fn framed(&self, svg: &str) -> String {
        let Self {
            id,
            title,
            description,
            ..
        } = self;
        let (title, description) = (text(title), text(description));
        // What comes before the element has no place within a page.
        let svg = svg.find("<svg").map_or("", |at| &svg[at..]);
        let svg = svg
            .replacen(
                "<svg",
                &format!("<svg role=\"img\" aria-labelledby=\"{id}-title {id}-description\""),
                1,
            )
            .replacen(
                '>',
                &format!(
                    "><title id=\"{id}-title\">{title}</title><desc id=\"{id}-description\">{description}</desc>"
                ),
                1,
            );
        // Writing to a String cannot fail.
        let mut legend = String::new();
        for line in &self.lines {
            let _ = write!(
                legend,
                "<li><svg class=\"key\" width=\"34\" height=\"10\" aria-hidden=\"true\"><line x1=\"1\" y1=\"5\" x2=\"33\" y2=\"5\" stroke-width=\"2\" stroke=\"{}\"/></svg> {}</li>",
                hex(colour(line.colour, line.run)),
                text(&line.label)
            );
        }
        if let Some((_, name)) = &self.mark {
            let _ = write!(
                legend,
                "<li><svg class=\"key\" width=\"34\" height=\"10\" aria-hidden=\"true\"><line x1=\"17\" y1=\"0\" x2=\"17\" y2=\"10\" stroke-width=\"1\" stroke=\"{}\"/></svg> {}</li>",
                hex(MARK),
                text(name)
            );
        }
        format!(
            "<figure><figcaption>{title}</figcaption><ul class=\"legend\">{legend}</ul><div class=\"wide\">{svg}</div></figure>\n"
        )
    }
}

fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Rules that give the colours their values: in light, in dark.
pub fn style() -> String {
    const LIGHT: [&str; COLOURS] = [
        "#0b62c4", "#b8450b", "#1c7d4d", "#7b3fb3", "#8a6d00", "#b3265e", "#00727a", "#5a5f66",
    ];
    const DARK: [&str; COLOURS] = [
        "#79b8ff", "#ff9d6b", "#66d19e", "#cfa6ff", "#e5c558", "#ff8fb8", "#5fd3dc", "#b5bcc6",
    ];
    let rules = |values: [&str; COLOURS], indent: &str| {
        let mut out = String::new();
        for (index, value) in values.iter().enumerate() {
            for run in 0..2 {
                let name = hex(colour(index, run));
                let _ = write!(
                    out,
                    "{indent}[stroke=\"{name}\"]{{stroke:{value}}}\n{indent}[fill=\"{name}\"]{{fill:{value}}}\n"
                );
            }
        }
        out
    };
    let mut out = rules(LIGHT, "");
    for index in 0..COLOURS {
        let _ = writeln!(
            out,
            "[stroke=\"{}\"]{{stroke-dasharray:7 4}}",
            hex(colour(index, 1))
        );
    }
    for (name, variable) in [(INK, "ink"), (GRID, "grid"), (MARK, "mark")] {
        let name = hex(name);
        let _ = write!(
            out,
            "[stroke=\"{name}\"]{{stroke:var(--{variable})}}\n[fill=\"{name}\"]{{fill:var(--{variable})}}\n"
        );
    }
    out += "@media (prefers-color-scheme: dark) {\n";
    out += &rules(DARK, "  ");
    out + "}\n"
}

/// Points of a histogram's cumulative distribution: time against part.
#[allow(clippy::cast_precision_loss)] // drawn
pub fn cumulative(buckets: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let all: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let mut below = 0;
    buckets
        .iter()
        .map(|&(value, count)| {
            below += count;
            (value.max(1) as f64, below as f64 / all.max(1) as f64)
        })
        .collect()
}

/// Points of a histogram's percentiles: 1 / (1 − quantile) against time.
#[allow(clippy::cast_precision_loss)] // drawn
pub fn percentiles(buckets: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let all: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let mut below = 0;
    let mut points = Vec::new();
    for &(value, count) in buckets {
        let value = value.max(1) as f64;
        // Where the bucket begins and where it ends: a long bucket is a long level line.
        points.push((all as f64 / (all - below) as f64, value));
        below += count;
        points.push((all as f64 / (all - below + 1) as f64, value));
    }
    points
}

/// A time for a table.
pub fn time(ns: u64) -> String {
    html::text(shown(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_the_histogram_does() {
        let buckets = [(10, 90), (100, 9), (1000, 1)];
        assert_eq!(
            cumulative(&buckets),
            [(10.0, 0.9), (100.0, 0.99), (1000.0, 1.0)]
        );
        let points = percentiles(&buckets);
        assert_eq!(points.first(), Some(&(1.0, 10.0)));
        assert_eq!(points.last(), Some(&(100.0, 1000.0)));
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
        assert!(percentiles(&[]).is_empty());
    }

    #[test]
    fn labels() {
        assert_eq!(Axis::Percentile.label(1.0), "0 %");
        assert_eq!(Axis::Percentile.label(100.0), "99 %");
        assert_eq!(Axis::Percentile.label(10_000.0), "99.99 %");
        assert_eq!(Axis::Rate.label(25_000.0), "25 k");
        assert_eq!(Axis::Time.label(1500.0), "1.5 µs");
    }

    #[test]
    fn a_figure_names_what_it_shows() {
        for points in [vec![], vec![(1.0, 5.0)], vec![(1.0, 5.0), (1000.0, 7e9)]] {
            let plot = Plot {
                id: "a".into(),
                title: "A <title>".into(),
                description: "what there is".into(),
                x: (Axis::Percentile, "percentile"),
                y: (Axis::Time, "latency"),
                lines: vec![Line {
                    label: "one".into(),
                    colour: 1,
                    run: 1,
                    points,
                    dots: true,
                }],
                mark: None,
            };
            let figure = plot.figure().unwrap();
            assert!(figure.contains("<title id=\"a-title\">A &lt;title&gt;</title>"));
            assert!(figure.contains("aria-labelledby=\"a-title a-description\""));
            assert!(!figure.contains("<?xml") && figure.contains("</svg>"));
        }
        assert!(style().contains("prefers-color-scheme: dark"));
    }
}

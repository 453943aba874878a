//! Charts as SVG: lines over time, in one chart or in panels, and grouped bars.
//!
//! Invariant: the same data give the same bytes. Axes start at zero, so that the length of a bar is
//! its value.
//!
//! Source: the colours are those of Okabe and Ito, chosen for colour-blind readers.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (1000, 480);
const PANEL_HEIGHT: u32 = 120;
/// Width of the legend on the right, in pixels.
const LEGEND_WIDTH: u32 = 190;

const FONT: &str = "sans-serif";

const GRID: RGBColor = RGBColor(225, 225, 225);

/// Okabe and Ito's palette without its yellow, which is too light for lines on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// Lines over a common axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lines {
    /// Title.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// The lines.
    pub series: Vec<Line>,
}

/// A line of a chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether it is a reference for comparison, which is dashed. The n-th reference has the colour
    /// of the n-th line.
    pub is_reference: bool,
}

/// Groups of bars.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// Names of the groups, from left to right.
    pub groups: Vec<String>,
    /// The name of each bar of a group, and its value in each group.
    pub series: Vec<(String, Vec<f64>)>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Lines over a common axis.
    Lines(Lines),
    /// Each line in a panel of its own, with the same axes, for lines that would overlap.
    Panels(Lines),
    /// Groups of bars.
    Bars(Bars),
}

impl Plot {
    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = {
            let size = match self {
                Plot::Panels(lines) => (SIZE.0, 90 + PANEL_HEIGHT * lines.series.len() as u32),
                Plot::Lines(_) | Plot::Bars(_) => SIZE,
            };
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            match self {
                Plot::Lines(lines) => lines.draw(&area),
                Plot::Panels(lines) => lines.draw_panels(&area),
                Plot::Bars(bars) => bars.draw(&area),
            }
        };
        // The backend writes to memory, and the ranges are finite and not empty.
        drawn.expect("drawing to memory");
        svg
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult<'a> =
    Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Lines {
    fn draw(&self, area: &Area<'_>) -> DrawResult<'static> {
        area.fill(&WHITE)?;
        let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let (right, highest) = self.axis_ends();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, (FONT, 18))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..right, 0.0..highest)?;
        (chart.configure_mesh())
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_desc_style((FONT, 14))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .draw()?;
        // Lines and references are counted separately, so that a pair has one colour.
        let mut drawn = [0; 2];
        for (row, line) in self.series.iter().enumerate() {
            let i = &mut drawn[usize::from(line.is_reference)];
            let style = colour(*i).stroke_width(2);
            *i += 1;
            let points: Vec<_> = line.finite_points().collect();
            let y = legend_row(row);
            let sample = vec![(4, y), (28, y)];
            if let [only] = points[..] {
                // A line of one point would be invisible.
                chart.draw_series([Circle::new(only, 3, style.color.filled())])?;
            }
            if line.is_reference {
                chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?;
                legend.draw(&DashedPathElement::new(sample, 5, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(points, style))?;
                legend.draw(&PathElement::new(sample, style))?;
            }
            name_in_legend(&legend, row, &line.name)?;
        }
        area.present()
    }

    /// Ends of the axes.
    fn axis_ends(&self) -> (f64, f64) {
        let points = || self.series.iter().flat_map(|line| &line.points);
        (top(points().map(|(x, _)| *x)), 1.05 * top(points().map(|(_, y)| *y)))
    }

    fn draw_panels(&self, area: &Area<'_>) -> DrawResult<'static> {
        area.fill(&WHITE)?;
        let area = area.titled(&format!("{}: {}", self.title, self.y), (FONT, 18))?;
        let (panels, below) = area.split_vertically(PANEL_HEIGHT * self.series.len() as u32);
        let (right, highest) = self.axis_ends();
        let panels = panels.split_evenly((self.series.len().max(1), 1));
        for (i, (line, panel)) in self.series.iter().zip(&panels).enumerate() {
            let mut chart = ChartBuilder::on(panel)
                .caption(&line.name, (FONT, 14))
                .margin(4)
                .margin_right(24)
                .x_label_area_size(22)
                .y_label_area_size(64)
                .build_cartesian_2d(0.0..right, 0.0..highest)?;
            (chart.configure_mesh())
                .light_line_style(WHITE)
                .bold_line_style(GRID)
                .y_labels(4)
                .x_label_formatter(&number)
                .y_label_formatter(&number)
                .draw()?;
            chart.draw_series(LineSeries::new(line.finite_points(), colour(i)))?;
        }
        let middle = TextStyle::from((FONT, 14)).pos(Pos::new(HPos::Center, VPos::Top));
        below.draw(&Text::new(self.x.as_str(), (SIZE.0 as i32 / 2, 4), middle))?;
        area.present()
    }
}

impl Line {
    /// The finite points.
    fn finite_points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

impl Bars {
    fn draw(&self, area: &Area<'_>) -> DrawResult<'static> {
        area.fill(&WHITE)?;
        let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let values = self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let groups = self.groups.len().max(1);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, (FONT, 18))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..groups as f64, 0.0..1.1 * top(values))?;
        (chart.configure_mesh())
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_desc_style((FONT, 14))
            .y_desc(&self.y)
            .y_label_formatter(&number)
            .draw()?;
        // The bars use four fifths of a group's width.
        let width = 0.8 / self.series.len().max(1) as f64;
        // Labels are rotated if they would overlap.
        let pixels = f64::from(SIZE.0 - LEGEND_WIDTH - 104) / groups as f64;
        let values = self.series.iter().flat_map(|(_, values)| values);
        let are_rotated =
            values.map(|value| text_width(&number(value), 12)).fold(0.0, f64::max) > width * pixels;
        let above = TextStyle::from((FONT, 12));
        let above = match are_rotated {
            true => {
                above.transform(FontTransform::Rotate270).pos(Pos::new(HPos::Left, VPos::Center))
            }
            false => above.pos(Pos::new(HPos::Center, VPos::Bottom)),
        };
        for (i, (name, values)) in self.series.iter().enumerate() {
            let fill = colour(i).filled();
            let bars = values.iter().take(groups).enumerate();
            for (group, &value) in bars.filter(|(_, value)| value.is_finite()) {
                let left = group as f64 + 0.1 + i as f64 * width;
                let corners = [(left, 0.0), (left + 0.94 * width, value)];
                chart.draw_series([Rectangle::new(corners, fill)])?;
                let at = (left + width / 2.0, value);
                chart.draw_series([Text::new(number(&value), at, above.clone())])?;
            }
            let y = legend_row(i);
            legend.draw(&Rectangle::new([(12, y - 6), (24, y + 6)], fill))?;
            name_in_legend(&legend, i, name)?;
        }
        let below = TextStyle::from((FONT, 14)).pos(Pos::new(HPos::Center, VPos::Top));
        let are_long = self.groups.iter().any(|group| text_width(group, 14) > pixels);
        for (i, group) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(i as f64 + 0.5, 0.0));
            let line = if are_long { 17 * (i as i32 % 2) } else { 0 };
            area.draw(&Text::new(group.as_str(), (x, y + 8 + line), below.clone()))?;
        }
        area.present()
    }
}

/// Approximate width of a text in pixels at this font size.
fn text_width(text: &str, size: u32) -> f64 {
    0.55 * f64::from(size) * text.chars().count() as f64
}

/// The vertical middle of a row of the legend.
fn legend_row(row: usize) -> i32 {
    // A chart has few series.
    60 + 22 * row as i32
}

fn name_in_legend(legend: &Area<'_>, row: usize, name: &str) -> DrawResult<'static> {
    let style = TextStyle::from((FONT, 14)).pos(Pos::new(HPos::Left, VPos::Center));
    legend.draw(&Text::new(name, (34, legend_row(row)), style))
}

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// The largest finite value, or 1 if none is above 0: an axis needs a length.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if largest > 0.0 { largest } else { 1.0 }
}

/// A short form of a number: `1.5 M`, `20 k`, `0.25`.
#[allow(clippy::trivially_copy_pass_by_ref)] // plotters' formatters take references
fn number(value: &f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (*value, ""),
    };
    // Two significant digits of a small number.
    let places = match value.abs() {
        v if v > 0.0 && v < 0.1 => (1.0 - v.log10().floor()) as usize,
        _ => 2,
    };
    if places > 7 {
        return format!("{value:.1e}");
    }
    let text = format!("{scaled:.places$}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[(f64, f64)], is_reference: bool) -> Line {
        Line { name: name.to_owned(), points: points.to_vec(), is_reference }
    }

    fn lines() -> Lines {
        Lines {
            title: "Throughput & more <over> time".to_owned(),
            x: "time (s)".to_owned(),
            y: "operations/s".to_owned(),
            series: vec![
                line("lsm", &[(0.0, 10.0), (1.0, 20_000.0), (2.0, f64::NAN)], false),
                line("trie", &[(0.0, 5.0), (1.0, 7.0)], false),
                line("rocksdb", &[(0.0, 5.0), (1.0, 9_000.0)], true),
            ],
        }
    }

    fn bars() -> Plot {
        Plot::Bars(Bars {
            title: "Write amplification".to_owned(),
            y: "bytes per byte".to_owned(),
            groups: vec!["log".to_owned(), "L1".to_owned()],
            series: vec![
                ("model".to_owned(), vec![1.0, 4.5]),
                ("measured".to_owned(), vec![1.25, 4.0]),
            ],
        })
    }

    /// Checks that tags nest and close and that attributes are quoted, which is sufficient for a
    /// document without entities of its own.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some(start) = rest.find('<') {
            let text = &rest[..start];
            assert!(!text.contains('>'), "a stray > in {text:?}");
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
            } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
                open.push(tag.split_whitespace().next().unwrap_or_default().to_owned());
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty(), "{open:?} left open");
        for part in svg.split('&').skip(1) {
            let entity = part.split(';').next().unwrap_or_default();
            assert!(["amp", "lt", "gt", "quot", "apos"].contains(&entity), "&{entity}");
        }
    }

    #[test]
    fn charts_are_well_formed_and_reproducible() {
        for plot in [Plot::Lines(lines()), Plot::Panels(lines()), bars()] {
            let svg = plot.svg();
            assert!(svg.starts_with("<svg"));
            assert_well_formed(&svg);
            assert_eq!(svg, plot.svg());
        }
    }

    #[test]
    fn chart_contains_its_series_and_labels() {
        let svg = Plot::Lines(lines()).svg();
        let of = |colour: &'static str| {
            svg.lines().filter(move |line| line.starts_with("<polyline") && line.contains(colour))
        };
        // Each line is in the plot and in the legend; the reference has the first line's colour,
        // dashed.
        assert_eq!(of("#D55E00").count(), 2);
        assert!(of("#0072B2").count() > 10);
        for word in ["rocksdb", "lsm", "time (s)", "operations/s", "&amp;", "&lt;over&gt;"] {
            assert!(svg.contains(word), "{word}");
        }
        let svg = Plot::Panels(lines()).svg();
        for word in ["rocksdb", "lsm", "trie", "time (s)", "operations/s"] {
            assert!(svg.contains(word), "{word}");
        }
        // Each line has a panel and no legend.
        for colour in ["#0072B2", "#D55E00", "#009E73"] {
            let lines = svg.lines().filter(|it| it.starts_with("<polyline") && it.contains(colour));
            assert_eq!(lines.count(), 1, "{colour}");
        }
        let svg = bars().svg();
        for word in ["model", "measured", "log", "L1", "bytes per byte", "4.5", "1.25"] {
            assert!(svg.contains(word), "{word}");
        }
        // Two bars and a legend entry per colour.
        for colour in ["#0072B2", "#D55E00"] {
            let rectangles = svg.lines().filter(|line| line.starts_with("<rect"));
            assert_eq!(rectangles.filter(|line| line.contains(colour)).count(), 3, "{colour}");
        }
    }

    #[test]
    fn empty_charts_are_drawn() {
        assert_well_formed(&Plot::Lines(Lines::default()).svg());
        assert_well_formed(&Plot::Panels(Lines::default()).svg());
        assert_well_formed(&Plot::Bars(Bars::default()).svg());
    }

    #[test]
    fn numbers_have_a_short_form() {
        let texts = [0.0, 0.25, 9999.0, 20_000.0, 1.5e6, 2e9].map(|value| number(&value));
        assert_eq!(texts, ["0", "0.25", "9999", "20 k", "1.5 M", "2 G"]);
        let low = [0.1, 0.05, 0.012, 0.0015, 3.2e-5, 1e-9, -0.002].map(|value| number(&value));
        assert_eq!(low, ["0.1", "0.05", "0.012", "0.0015", "0.000032", "1.0e-9", "-0.002"]);
    }

    #[test]
    fn crowded_bar_labels_are_rotated() {
        let bars = |groups: usize, name: &str| {
            let series = (0..3).map(|n| (n.to_string(), vec![12_345.0; groups])).collect();
            let groups = (0..groups).map(|n| format!("{name} {n}")).collect();
            Plot::Bars(Bars { groups, series, ..Bars::default() }).svg()
        };
        // The label of the vertical axis is always rotated.
        let rotated = |svg: &str| svg.matches("rotate(270").count() - 1;
        assert_eq!(rotated(&bars(3, "g")), 0);
        assert_eq!(rotated(&bars(12, "g")), 36);
        // Group names that would overlap are on two lines.
        let heights = |svg: &str| {
            let lines: Vec<_> = svg.lines().collect();
            let of = |at: usize| lines[at].split(" y=\"").nth(1)?.split('"').next();
            let named = (0..lines.len() - 1).filter(|&at| lines[at + 1].starts_with("a group"));
            named.filter_map(of).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(heights(&bars(4, "a group")), 1);
        assert_eq!(heights(&bars(12, "a group of a long name")), 2);
    }
}

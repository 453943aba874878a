//! Pictures as SVG: lines over time, bars side by side.
//!
//! Invariant: the same data give the same bytes, and every number that is drawn is one that was
//! given: axes start at zero, so that a bar's length is its value.
//!
//! Source: ours over `plotters`; the colours are Okabe and Ito's, which the colour-blind can tell
//! apart.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (900, 480);
const FONT: &str = "sans-serif";

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
    /// What the picture shows.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// Each line's name and points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// Groups of bars.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// What the picture shows.
    pub title: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// The groups' names, from left to right.
    pub groups: Vec<String>,
    /// The name of each bar of a group, and its value in each group.
    pub series: Vec<(String, Vec<f64>)>,
}

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Lines over a common axis.
    Lines(Lines),
    /// Groups of bars.
    Bars(Bars),
}

impl Plot {
    /// The picture as an SVG document.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            match self {
                Plot::Lines(lines) => lines.draw(&area),
                Plot::Bars(bars) => bars.draw(&area),
            }
        };
        // The backend writes to memory, and the ranges below are finite and not empty.
        drawn.expect("drawing to memory");
        svg
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Lines {
    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(80)
            .build_cartesian_2d(
                0.0..top(points().map(|(x, _)| *x)),
                0.0..1.08 * top(points().map(|(_, y)| *y)),
            )?;
        (chart.configure_mesh())
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .draw()?;
        for (i, (name, points)) in self.series.iter().enumerate() {
            let style = colour(i).stroke_width(2);
            let finite = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
            (chart.draw_series(LineSeries::new(finite, style))?.label(name))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        legend(chart)?;
        area.present()
    }
}

impl Bars {
    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        let values = self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let groups = self.groups.len().max(1);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..groups as f64, 0.0..1.15 * top(values))?;
        (chart.configure_mesh())
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .y_desc(&self.y)
            .y_label_formatter(&number)
            .draw()?;
        // Four fifths of a group's width are its bars'.
        let width = 0.8 / self.series.len().max(1) as f64;
        let mut labels = Vec::new();
        for (i, (name, values)) in self.series.iter().enumerate() {
            let bars = values.iter().take(groups).enumerate();
            let bars = bars.filter(|(_, value)| value.is_finite()).map(|(group, &value)| {
                let left = group as f64 + 0.1 + i as f64 * width;
                labels.push((left + width / 2.0, value));
                Rectangle::new([(left, 0.0), (left + 0.94 * width, value)], colour(i).filled())
            });
            let bars: Vec<_> = bars.collect();
            (chart.draw_series(bars)?.label(name)).legend(move |(x, y)| {
                Rectangle::new([(x + 4, y - 5), (x + 14, y + 5)], colour(i).filled())
            });
        }
        let above = TextStyle::from((FONT, 12)).pos(Pos::new(HPos::Center, VPos::Bottom));
        let texts = labels.into_iter().map(|at| Text::new(number(&at.1), at, above.clone()));
        chart.draw_series(texts)?;
        let below = TextStyle::from((FONT, 14)).pos(Pos::new(HPos::Center, VPos::Top));
        for (i, group) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(i as f64 + 0.5, 0.0));
            area.draw(&Text::new(group.as_str(), (x, y + 8), below.clone()))?;
        }
        legend(chart)?;
        area.present()
    }
}

type Chart<'b> = ChartContext<'b, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn legend<'b>(mut chart: Chart<'b>) -> Drawn<'b> {
    (chart.configure_series_labels())
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 14))
        .draw()
}

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// The largest finite value, and 1 where there is none above 0: an axis needs a length.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if largest > 0.0 { largest } else { 1.0 }
}

/// A number as short as can be read: `1.5 M`, `20 k`, `0.25`.
#[allow(clippy::trivially_copy_pass_by_ref)] // plotters' formatters take references
fn number(value: &f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (*value, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Plot {
        Plot::Lines(Lines {
            title: "Throughput & more <over> time".to_owned(),
            x: "time (s)".to_owned(),
            y: "operations/s".to_owned(),
            series: vec![
                ("lsm".to_owned(), vec![(0.0, 10.0), (1.0, 20_000.0), (2.0, f64::NAN)]),
                ("rocksdb".to_owned(), vec![(0.0, 5.0), (1.0, 7.0)]),
            ],
        })
    }

    fn bars() -> Plot {
        Plot::Bars(Bars {
            title: "Write amplification".to_owned(),
            y: "bytes a byte".to_owned(),
            groups: vec!["log".to_owned(), "L1".to_owned()],
            series: vec![
                ("model".to_owned(), vec![1.0, 4.5]),
                ("measured".to_owned(), vec![1.25, 4.0]),
            ],
        })
    }

    /// Checks that tags nest and close and that attributes are quoted; enough for what a browser
    /// needs of a document without entities of its own.
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
    fn pictures_are_well_formed_and_always_the_same() {
        for plot in [lines(), bars()] {
            let svg = plot.svg();
            assert!(svg.starts_with("<svg"));
            assert_well_formed(&svg);
            assert_eq!(svg, plot.svg());
        }
    }

    #[test]
    fn a_picture_holds_its_series_and_its_words() {
        let svg = lines().svg();
        // Each line once in the plot and once in the legend.
        for colour in ["#0072B2", "#D55E00"] {
            let lines = svg.lines().filter(|line| line.starts_with("<polyline"));
            assert_eq!(lines.filter(|line| line.contains(colour)).count(), 2, "{colour}");
        }
        for word in ["rocksdb", "lsm", "time (s)", "operations/s", "&amp;", "&lt;over&gt;"] {
            assert!(svg.contains(word), "{word}");
        }
        let svg = bars().svg();
        for word in ["model", "measured", "log", "L1", "bytes a byte", "4.5", "1.25"] {
            assert!(svg.contains(word), "{word}");
        }
        // Two bars and a mark in the legend of each colour.
        for colour in ["#0072B2", "#D55E00"] {
            let rectangles = svg.lines().filter(|line| line.starts_with("<rect"));
            assert_eq!(rectangles.filter(|line| line.contains(colour)).count(), 3, "{colour}");
        }
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        assert_well_formed(&Plot::Lines(Lines::default()).svg());
        assert_well_formed(&Plot::Bars(Bars::default()).svg());
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.25, 9999.0, 20_000.0, 1.5e6, 2e9].map(|value| number(&value));
        assert_eq!(texts, ["0", "0.25", "9999", "20 k", "1.5 M", "2 G"]);
    }
}

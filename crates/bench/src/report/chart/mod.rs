//! Charts as SVG. A page has each twice, for wide screens and for narrow ones, so that text is as large as the page's on both.

mod bars;
mod frame;
mod labels;
mod lines;
mod marker;
mod scale;

use super::markup::escape;
pub(crate) use bars::Bars;
pub(crate) use lines::Line;
use std::fmt::Write;

/// Colours, in light and in dark, and how a chart's parts look.
pub(crate) const STYLE: &str = include_str!("chart.css");
/// The colour of what was published.
pub(crate) const PUBLISHED: usize = 0;
/// Colours that there are: 1 is for Tessera.
pub(crate) const COLORS: usize = 7;

/// What is drawn.
pub(crate) struct Chart {
    pub(crate) x: &'static str,
    /// What the values are, with their unit.
    pub(crate) y: &'static str,
    pub(crate) marks: Marks,
}

pub(crate) enum Marks {
    Lines(Vec<Line>),
    Bars {
        /// What is below each group of bars.
        groups: Vec<String>,
        /// A bar in each group.
        series: Vec<Bars>,
    },
}

/// What a drawing is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Wide,
    /// Telephones.
    Narrow,
}

impl Width {
    /// Units of the drawing, which are about a pixel where it is shown.
    fn size(self) -> (f64, f64) {
        match self {
            Self::Wide => (1_000.0, 380.0),
            Self::Narrow => (380.0, 320.0),
        }
    }

    /// How wide a label of a line may be.
    fn label(self) -> f64 {
        match self {
            Self::Wide => 190.0,
            Self::Narrow => 92.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

impl Chart {
    pub(crate) fn is_empty(&self) -> bool {
        match &self.marks {
            Marks::Lines(lines) => lines.iter().all(|line| line.points.is_empty()),
            Marks::Bars { series, .. } => series.iter().all(|bars| bars.values.iter().all(Option::is_none)),
        }
    }

    /// Whether it shows nothing that was measured: of several lines or kinds of bars, those of what was published do not count. Of shares,
    /// which are of the largest or of the first, a single one says nothing.
    pub(crate) fn is_bare(&self) -> bool {
        let series: Vec<(usize, usize)> = match &self.marks {
            Marks::Lines(lines) => lines.iter().map(|line| (line.color, line.points.len())).collect(),
            Marks::Bars { series, .. } => {
                series.iter().map(|bars| (bars.color, bars.values.iter().flatten().count())).collect()
            }
        };
        let is_all_published = series.iter().all(|(color, _)| *color == PUBLISHED);
        let enough = if self.y.starts_with('%') { 2 } else { 1 };
        !series.iter().any(|(color, values)| (is_all_published || *color != PUBLISHED) && *values >= enough)
    }

    /// Both drawings of the chart, of which a page with [`STYLE`] shows the one that fits its width.
    pub(crate) fn inline(&self, title: &str) -> String {
        self.svg(title, Width::Wide, "") + &self.svg(title, Width::Narrow, "")
    }

    /// The text of a file of its own.
    pub(crate) fn file(&self, title: &str) -> String {
        let style = format!("<style>{STYLE}</style><rect class=\"ground\" width=\"100%\" height=\"100%\"/>");
        self.svg(title, Width::Wide, &style)
    }

    fn svg(&self, title: &str, width: Width, first: &str) -> String {
        let (right, bottom) = width.size();
        let marks = match &self.marks {
            Marks::Lines(lines) => lines::draw(self, lines, width),
            Marks::Bars { groups, series } => bars::draw(self, groups, series, width),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart {}\" viewBox=\"0 0 {right} {bottom}\" role=\"img\" \
             aria-label=\"{}\">{first}{marks}</svg>",
            width.class(),
            escape(title)
        )
    }
}

/// A text of a class at a place, which is its beginning, middle or end as the class says.
fn text(out: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    write!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text))
        .expect("a string takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(labels: &[&str]) -> Chart {
        let line = |(number, label): (usize, &&str)| Line {
            label: (*label).to_string(),
            color: number,
            points: vec![(15.0, 1_000.0), (1_200.0, 52_503.0 + number as f64)],
        };
        Chart { x: "clients", y: "operations/s", marks: Marks::Lines(labels.iter().enumerate().map(line).collect()) }
    }

    /// Where texts of a class are: the numbers of an attribute.
    fn places(svg: &str, class: &str, attribute: &str) -> Vec<f64> {
        let texts = svg.split("<text ").skip(1).filter(|text| text.starts_with(&format!("class=\"{class}")));
        let attribute = format!(" {attribute}=\"");
        texts.map(|text| text.split_once(&attribute).unwrap().1.split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn lines_are_labelled_at_their_ends_without_overlap() {
        let chart = lines(&["published", "Tessera", "redis-server", "etcd"]);
        for svg in [chart.svg("x", Width::Wide, ""), chart.svg("x", Width::Narrow, "")] {
            let mut rows = places(&svg, "label", "y");
            assert_eq!(rows.len(), 4);
            rows.sort_by(f64::total_cmp);
            assert!(rows.windows(2).all(|pair| pair[1] - pair[0] >= labels::LINE - 1e-9), "{rows:?}");
        }
    }

    #[test]
    fn points_and_ticks_say_their_values_with_thousands_apart() {
        let svg = lines(&["published"]).svg("x", Width::Wide, "");
        assert!(svg.contains("<title>published, 1,200 clients: 52,503 operations/s</title>"), "{svg}");
        assert!(svg.contains(">60,000</text>") && svg.contains(">1,200</text>"));
    }

    #[test]
    fn text_is_escaped_and_every_line_has_a_colour_of_its_own() {
        let svg = lines(&["<a&\"b\">", "c"]).svg("\"<&", Width::Wide, "");
        assert!(svg.contains("aria-label=\"&quot;&lt;&amp;\"") && svg.contains("&lt;a&amp;&quot;b&quot;&gt;"));
        assert!(svg.contains("class=\"point s0\"") && svg.contains("class=\"point s1\""));
        let of_color = |color: usize| STYLE.matches(&format!("--s{color}:")).count();
        assert!((0..COLORS).all(|color| of_color(color) == 2), "one in light and one in dark");
    }

    #[test]
    fn a_chart_without_anything_measured_is_bare() {
        let chart = |y, points: &[(usize, usize)]| {
            let line = |(color, points): &(usize, usize)| Line {
                label: "x".into(),
                color: *color,
                points: (0..*points).map(|x| (x as f64, 1.0)).collect(),
            };
            Chart { x: "clients", y, marks: Marks::Lines(points.iter().map(line).collect()) }
        };
        let is_bare = |y, points: &[(usize, usize)]| chart(y, points).is_bare();
        assert!(is_bare("ms", &[]) && is_bare("ms", &[(PUBLISHED, 0)]) && is_bare("ms", &[(PUBLISHED, 5), (1, 0)]));
        assert!(!is_bare("ms", &[(PUBLISHED, 5), (1, 1)]) && !is_bare("ms", &[(PUBLISHED, 5)]));
        assert!(is_bare("% of the highest", &[(PUBLISHED, 5), (1, 1), (2, 0)]));
        assert!(!is_bare("% of the highest", &[(PUBLISHED, 5), (1, 1), (2, 2)]));
    }

    #[test]
    fn bars_are_inside_and_those_without_a_value_are_left_out() {
        let bars =
            |label: &str, color, values: &[Option<f64>]| Bars { label: label.into(), color, values: values.into() };
        let chart = Chart {
            x: "bytes",
            y: "operations/s",
            marks: Marks::Bars {
                groups: vec!["512".into(), "1,024".into()],
                series: vec![
                    bars("published", 0, &[Some(790_000.0), Some(720_000.0)]),
                    bars("Tessera", 1, &[Some(89_818.0), None]),
                ],
            },
        };
        for width in [Width::Wide, Width::Narrow] {
            let svg = chart.svg("x", width, "");
            let heights: Vec<f64> = svg
                .split("<rect class=\"bar\"")
                .skip(1)
                .map(|bar| bar.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
                .collect();
            assert_eq!(heights.len(), 3);
            assert!((heights[2] / heights[0] - 720.0 / 790.0).abs() < 0.01, "{heights:?}");
        }
        assert!(chart.svg("x", Width::Wide, "").contains(">790,000</text>"));
    }

    #[test]
    fn values_that_have_no_room_are_short_and_then_upright() {
        let svg = |count| {
            let bars = |color| Bars { label: format!("bars {color}"), color, values: vec![Some(89_818.0); 3] };
            let series = (0..count).map(bars).collect();
            let groups = vec!["512".into(), "1,024".into(), "3,072".into()];
            let marks = Marks::Bars { groups, series };
            Chart { x: "bytes", y: "operations/s", marks }.svg("x", Width::Narrow, "")
        };
        assert!(svg(1).contains(">89,818</text>"));
        assert!(svg(3).contains(">90k</text>") && !svg(3).contains("rotate"));
        assert!(svg(4).contains(">90k</text>") && svg(4).contains("rotate"));
    }
}

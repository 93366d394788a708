//! A result as one HTML file that needs nothing else.

use super::{RunResult, table};
use anyhow::anyhow;
use plotters::prelude::*;
use std::fmt::Write;

const SIZE: (u32, u32) = (760, 300);

/// For lines of a chart that have no color of their own.
pub(crate) const COLORS: [RGBColor; 4] =
    [RGBColor(130, 130, 130), RGBColor(31, 100, 200), RGBColor(210, 80, 40), RGBColor(40, 140, 70)];

/// A chart is drawn for a light page; on a dark one its ground and its lines change places, also where the chart is a file of
/// its own.
const DARK: &str = "<style>@media (prefers-color-scheme:dark){svg [fill=\"#FFFFFF\"]{fill:#1c1c20}\
    svg [fill=\"#000000\"]{fill:#d8d8dc}svg [stroke=\"#000000\"]{stroke:#8a8a90}svg [stroke=\"#1F64C8\"]{stroke:#6aa5ff}\
    svg [fill=\"#1F64C8\"]{fill:#6aa5ff}}</style>";

pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) color: RGBColor,
    pub(crate) points: Vec<(f64, f64)>,
}

/// # Errors
/// If a chart cannot be drawn.
pub fn html(result: &RunResult) -> anyhow::Result<String> {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>tessera bench</title><style>:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;\
         max-width:800px;margin:2em auto;padding:0 1em}table{border-collapse:collapse;display:block;overflow-x:auto}\
         td,th{padding:.2em .6em;border-bottom:1px solid #8884;text-align:right;white-space:nowrap}\
         svg{width:100%;height:auto}code{overflow-wrap:anywhere}</style>",
    );
    write!(
        page,
        "<h1>{}</h1><p>{}, mix {}, {} records.</p>",
        escape(&result.settings.name),
        escape(&result.settings.server),
        escape(&result.settings.mix),
        result.settings.records
    )?;
    page += &table_to_html(&table(std::slice::from_ref(result)));
    for warning in &result.warnings {
        write!(page, "<p><strong>Note:</strong> {}</p>", escape(warning))?;
    }
    let seconds = |value: fn(&crate::measure::Second) -> f64| -> Vec<(f64, f64)> {
        result.timeline.iter().map(|second| (second.second as f64, value(second))).collect()
    };
    page += "<h2>Throughput over time</h2>";
    page += &chart(
        "seconds",
        "operations/s",
        &[Line { label: "operations".into(), color: BLUE, points: seconds(|s| s.operations as f64) }],
    )?;
    page += "<h2>P99 latency over time</h2>";
    page += &chart(
        "seconds",
        "milliseconds",
        &[
            Line { label: "reads".into(), color: BLUE, points: seconds(|s| s.read_p99_ms) },
            Line { label: "writes".into(), color: RED, points: seconds(|s| s.write_p99_ms) },
        ],
    )?;
    page += "<h2>Latency distribution</h2><p>How many of a hundred, a thousand, ... operations were slower: each step to the \
             right is one nine more.</p>";
    // The number of nines: 1 for P90, 2 for P99 and so on.
    let nines = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().filter(|(share, _)| *share < 1.0).map(|(share, ms)| (-(1.0 - share).log10(), *ms)).collect()
    };
    page += &chart(
        "nines",
        "milliseconds",
        &[
            Line { label: "reads".into(), color: BLUE, points: nines(&result.read_distribution) },
            Line { label: "writes".into(), color: RED, points: nines(&result.write_distribution) },
        ],
    )?;
    let host = &result.host;
    write!(
        page,
        "<h2>How it was measured</h2><p>{} with {} cores and {} GiB, Linux {}; Tessera {}. Server CPU: {}. The load generator used \
         {:.0} % of a core.</p><p><code>{}</code></p></html>",
        escape(&host.cpu),
        host.cores,
        host.memory_bytes >> 30,
        escape(&host.kernel),
        escape(&host.tessera_version),
        result.server_cpu_seconds.map_or("not measured".into(), |cpu| format!("{cpu:.2} s in {:.1} s", result.seconds)),
        result.client_cpu_share * 100.0,
        escape(&result.settings.command),
    )?;
    Ok(page)
}

pub(crate) fn chart(x: &str, y: &str, lines: &[Line]) -> anyhow::Result<String> {
    let mut svg = String::new();
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    if all().next().is_none() {
        return Ok("<p>Nothing was recorded.</p>".into());
    }
    let right = all().map(|(x, _)| x).fold(0.0, f64::max).max(1.0);
    let top = all().map(|(_, y)| y).fold(0.0, f64::max).max(1e-3) * 1.1;
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| anyhow!("a chart could not be drawn: {error}");
        root.fill(&WHITE).map_err(|error| failed(&error))?;
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..right, 0.0..top)
            .map_err(|error| failed(&error))?;
        chart.configure_mesh().max_light_lines(0).x_desc(x).y_desc(y).draw().map_err(|error| failed(&error))?;
        for line in lines.iter().filter(|line| line.points.iter().any(|(_, y)| *y > 0.0)) {
            let color = line.color;
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), &color))
                .map_err(|error| failed(&error))?
                .label(line.label.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()
            .map_err(|error| failed(&error))?;
        root.present().map_err(|error| failed(&error))?;
    }
    // Behind the opening tag.
    let begin = svg.find('>').map_or(0, |end| end + 1);
    svg.insert_str(begin, DARK);
    Ok(svg)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn table_to_html(markdown: &str) -> String {
    let mut html = String::from("<table>");
    for (number, line) in markdown.lines().enumerate().filter(|(number, _)| *number != 1) {
        let cell = if number == 0 { "th" } else { "td" };
        html += "<tr>";
        for text in line.trim_matches('|').split('|') {
            html += &format!("<{cell}>{}</{cell}>", escape(text.trim()));
        }
        html += "</tr>";
    }
    html + "</table>"
}

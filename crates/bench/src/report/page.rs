//! A result as one HTML file that needs nothing else.

use super::chart::{Chart, Line, Marks};
use super::html::{figure, page, table};
use super::markup::escape;
use super::number::whole;
use super::{COLUMNS, RunResult, row};

/// The result of one run as a page.
pub fn html(result: &RunResult) -> String {
    let settings = &result.settings;
    let mut body = format!(
        "<main><h1>{}</h1><p>{}, mix {}, {} records.</p>",
        escape(&settings.name),
        escape(&settings.server),
        escape(&settings.mix),
        whole(settings.records as f64)
    );
    body += &table(&COLUMNS, &[row(result)]);
    body.extend(result.warnings.iter().map(|warning| format!("<p class=\"note\">{}</p>", escape(warning))));
    let seconds = |value: fn(&crate::measure::Second) -> f64| -> Vec<(f64, f64)> {
        result.timeline.iter().map(|second| (second.second as f64, value(second))).collect()
    };
    let operations = Line { label: "operations".into(), color: 1, points: seconds(|s| s.operations as f64) };
    body += &section("Throughput over time", "seconds", "operations/s", vec![operations]);
    let both = |reads, writes| {
        let lines = [("reads", 1, reads), ("writes", 2, writes)].map(|(label, color, points): (_, _, Vec<_>)| {
            // Where nothing has ended, nothing was quick.
            Line { label: label.into(), color, points: points.into_iter().filter(|(_, y)| *y > 0.0).collect() }
        });
        lines.to_vec()
    };
    let latency = both(seconds(|s| s.read_p99_ms), seconds(|s| s.write_p99_ms));
    body += &section("P99 latency over time", "seconds", "ms", latency);
    // The number of nines: 1 for P90, 2 for P99 and so on.
    let nines = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().filter(|(share, _)| *share < 1.0).map(|(share, ms)| (-(1.0 - share).log10(), *ms)).collect()
    };
    let distribution = both(nines(&result.read_distribution), nines(&result.write_distribution));
    body += &section("Latency distribution: 1 is P90, 2 is P99, each step one nine more", "nines", "ms", distribution);
    let host = &result.host;
    let cpu = result.server_cpu_seconds.map(|cpu| format!("{cpu:.2} s in {:.1} s", result.seconds));
    body += &format!(
        "<h2>How it was measured</h2><p>{} with {} cores and {} GiB, Linux {}; {}. Server CPU: {}. The load generator used \
         {:.0} % of a core.</p><p><code>{}</code></p></main>",
        escape(&host.cpu),
        host.cores,
        host.memory_bytes >> 30,
        escape(&host.kernel),
        escape(&result.build()),
        cpu.unwrap_or("not measured".into()),
        result.client_cpu_share * 100.0,
        escape(&settings.command),
    );
    page(&settings.name, &body)
}

fn section(title: &str, x: &'static str, y: &'static str, lines: Vec<Line>) -> String {
    let chart = Chart { x, y, marks: Marks::Lines(lines) };
    if chart.is_empty() {
        return format!("<p>{}: nothing was recorded.</p>", escape(title));
    }
    figure(title, &chart)
}

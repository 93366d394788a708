//! The two formats of text in which metrics are served.

/// A format that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// [OpenMetrics 1.0](https://prometheus.io/docs/specs/om/open_metrics_spec/), in which a counter is declared without its `_total`.
    OpenMetrics,
    /// [Prometheus' own](https://prometheus.io/docs/instrumenting/exposition_formats/), which many other readers know only.
    Text,
}

impl MetricsFormat {
    /// The format for whoever sends this header `Accept`: OpenMetrics for those that name it.
    pub(crate) fn wanted(accept: Option<&str>) -> Self {
        let names_it =
            |accept: &str| accept.split(',').any(|kind| kind.trim().starts_with("application/openmetrics-text"));
        if accept.is_some_and(names_it) { Self::OpenMetrics } else { Self::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Turns OpenMetrics into this format.
    pub(crate) fn write(self, open_metrics: String) -> String {
        if self == Self::OpenMetrics {
            return open_metrics;
        }
        let counters: Vec<&str> = open_metrics.lines().filter_map(counter).collect();
        let mut text = String::with_capacity(open_metrics.len());
        for line in open_metrics.lines().filter(|line| *line != "# EOF") {
            let declared = ["# HELP ", "# TYPE "].iter().find_map(|of| line.strip_prefix(of)?.split_once(' '));
            match declared.filter(|(name, _)| counters.contains(name)) {
                Some((name, rest)) => {
                    let of = &line[..line.len() - name.len() - 1 - rest.len()];
                    text.extend([of, name, "_total ", rest]);
                }
                None => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }
}

/// The name of the counter that a line declares.
fn counter(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "# HELP writes Writes.\n# TYPE writes counter\nwrites_total{table=\"t\"} 7.0\n# HELP clients Clients.\n\
                        # TYPE clients gauge\nclients{} 2.0\n# EOF\n";

    #[test]
    fn who_names_open_metrics_gets_it_and_all_others_the_older_format() {
        for accept in [None, Some("*/*"), Some("text/plain;version=0.0.4;q=0.5")] {
            assert_eq!(MetricsFormat::wanted(accept), MetricsFormat::Text);
        }
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(MetricsFormat::wanted(Some(prometheus)), MetricsFormat::OpenMetrics);
        assert_eq!(MetricsFormat::OpenMetrics.write(OPEN.into()), OPEN);
        assert_eq!(
            MetricsFormat::Text.write(OPEN.into()),
            "# HELP writes_total Writes.\n# TYPE writes_total counter\nwrites_total{table=\"t\"} 7.0\n# HELP clients Clients.\n\
             # TYPE clients gauge\nclients{} 2.0\n"
        );
    }
}

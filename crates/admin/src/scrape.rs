//! The values of one scrape of Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use tessera_store::HistogramCounts;

type Labels = Vec<(String, String)>;
type Values<M> = HashMap<&'static str, Family<Labels, M>>;

/// What the names of values end in that only grow, as long as the process runs.
const COUNTED: &str = "_total";

fn owned(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
}

/// Collects the values of one scrape.
#[derive(Default)]
pub struct Scrape {
    registry: Registry,
    gauges: Values<Gauge<f64, AtomicU64>>,
    counters: Values<Counter<f64, AtomicU64>>,
    histograms: Values<Counted>,
}

/// A histogram that was counted elsewhere.
#[derive(Debug, Default)]
struct Counted(OnceLock<HistogramCounts>);

impl TypedMetric for Counted {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Counted {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let Some(counts) = self.0.get() else { return Ok(()) };
        // The library takes a bucket with the largest number for the last one, and calls it `+Inf`.
        let buckets: Vec<_> = counts.buckets.iter().map(|(bound, count)| (bound.min(f64::MAX), *count)).collect();
        encoder.encode_histogram::<NoLabelSet>(counts.sum_seconds, counts.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl Scrape {
    /// Adds a value under a name. A name that ends in `_total` is one of a counter, which only grows, and has one value for
    /// each set of labels; any other one is of a gauge.
    pub fn set(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let registry = &mut self.registry;
        let labels = owned(labels);
        match name.strip_suffix(COUNTED) {
            // The suffix is added where the value is written.
            Some(stem) => {
                let family = self.counters.entry(name).or_insert_with(|| {
                    let family = Family::default();
                    registry.register(stem, help, family.clone());
                    family
                });
                family.get_or_create(&labels).inc_by(value);
            }
            None => {
                let family = self.gauges.entry(name).or_insert_with(|| {
                    let family = Family::default();
                    registry.register(name, help, family.clone());
                    family
                });
                family.get_or_create(&labels).set(value);
            }
        }
    }

    /// Adds a histogram of durations under a name.
    pub(crate) fn set_histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        counts: HistogramCounts,
    ) {
        let registry = &mut self.registry;
        let family = self.histograms.entry(name).or_insert_with(|| {
            let family = Family::default();
            registry.register(name, help, family.clone());
            family
        });
        // Each is set once in a scrape.
        let _ = family.get_or_create(&owned(labels)).0.set(counts);
    }

    /// In Prometheus' words.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Encoding into a string fails only where a metric's own encoding does.
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each was declared a gauge once, of which Prometheus computes no rate that survives a restart.
    #[test]
    fn what_ends_in_total_is_a_counter_and_all_else_a_gauge() {
        let mut scrape = Scrape::default();
        scrape.set("tessera_writes_total", "Writes", &[("table", "t")], 7.0);
        scrape.set("tessera_writes_total", "Writes", &[("table", "u")], 8.5);
        scrape.set("tessera_clients", "Clients", &[], 2.0);
        let text = scrape.text();
        for line in [
            "# TYPE tessera_writes counter",
            "tessera_writes_total{table=\"t\"} 7.0",
            "tessera_writes_total{table=\"u\"} 8.5",
            "# TYPE tessera_clients gauge",
            "tessera_clients{} 2.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn buckets_hold_what_is_shorter_and_the_last_one_all() {
        let mut scrape = Scrape::default();
        let counts = HistogramCounts { buckets: vec![(0.1, 3), (0.25, 2), (f64::INFINITY, 1)], sum_seconds: 1.5 };
        scrape.set_histogram("tessera_request_duration_seconds", "Time", &[("face", "redis")], counts);
        let text = scrape.text();
        for line in [
            "# TYPE tessera_request_duration_seconds histogram",
            "tessera_request_duration_seconds_sum{face=\"redis\"} 1.5",
            "tessera_request_duration_seconds_count{face=\"redis\"} 6",
            "tessera_request_duration_seconds_bucket{le=\"0.1\",face=\"redis\"} 3",
            "tessera_request_duration_seconds_bucket{le=\"0.25\",face=\"redis\"} 5",
            "tessera_request_duration_seconds_bucket{le=\"+Inf\",face=\"redis\"} 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}

//! The values of one scrape of Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

type Labels = Vec<(String, String)>;
type Values<M> = HashMap<&'static str, Family<Labels, M>>;

/// What the names of values end in that only grow, as long as the process runs.
const COUNTED: &str = "_total";

/// Collects the values of one scrape.
#[derive(Default)]
pub struct Scrape {
    registry: Registry,
    gauges: Values<Gauge<f64, AtomicU64>>,
    counters: Values<Counter<f64, AtomicU64>>,
}

impl Scrape {
    /// Adds a value under a name. A name that ends in `_total` is one of a counter, which only grows, and has one value for
    /// each set of labels; any other one is of a gauge.
    pub fn set(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let registry = &mut self.registry;
        let labels = labels.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect();
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
}

//! The values of one scrape of Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

type Labels = Vec<(String, String)>;
type Values = Family<Labels, Gauge<f64, AtomicU64>>;

/// Collects the values of one scrape.
#[derive(Default)]
pub struct Gauges {
    registry: Registry,
    families: std::collections::HashMap<&'static str, Values>,
}

impl Gauges {
    /// Adds a value under a name; names that grow with time end in `_total`.
    pub fn set(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let registry = &mut self.registry;
        let family = self.families.entry(name).or_insert_with(|| {
            let family = Values::default();
            registry.register(name, help, family.clone());
            family
        });
        let labels = labels.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect();
        family.get_or_create(&labels).set(value);
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

//! What the crate counts, as Prometheus reads it.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The metrics of this process.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
}

/// Upper bounds of waits and call times, in seconds.
const SECONDS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

impl Metrics {
    /// Begins to collect. Once for a process.
    pub(crate) fn install() -> Result<Self, String> {
        let wrong = |error| format!("metrics cannot be collected: {error}");
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| wrong(error.to_string()))?;
        let upkeep = handle.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                upkeep.run_upkeep();
            }
        });
        Ok(Self { handle })
    }

    /// Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }
}

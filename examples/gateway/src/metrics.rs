//! What the crate counts, as Prometheus reads it.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tower_sluice::observe::{BATCH_BUCKETS, SECONDS_BUCKETS};

/// The metrics of this process.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Begins to collect. Once for a process.
    pub(crate) fn install() -> Result<Self, String> {
        let wrong = |error| format!("metrics cannot be collected: {error}");
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS_BUCKETS)
            .and_then(|builder| {
                let batches = Matcher::Suffix("_batch_size".to_owned());
                builder.set_buckets_for_metric(batches, BATCH_BUCKETS)
            })
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

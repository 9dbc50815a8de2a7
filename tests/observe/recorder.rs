//! Recorders that a test reads: what was counted, and what Prometheus would see.

use metrics::{Label, LocalRecorderGuard, set_default_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// A recorder for this thread, and what it has counted.
pub(super) struct Recorder {
    pub(super) snapshotter: Snapshotter,
    // Dropped before what it borrows.
    _guard: LocalRecorderGuard<'static>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let recorder: &'static _ = Box::leak(Box::new(DebuggingRecorder::new()));
        Self { snapshotter: recorder.snapshotter(), _guard: set_default_local_recorder(recorder) }
    }

    /// Every series: its name with its labels, and its value since the last call.
    pub(super) fn take(&self) -> Vec<(String, DebugValue)> {
        let series = self.snapshotter.snapshot().into_vec().into_iter();
        let mut series: Vec<_> = series
            .map(|(key, _, _, value)| {
                let label = |label: &Label| format!("{}={}", label.key(), label.value());
                let labels: Vec<_> = key.key().labels().map(label).collect();
                (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
            })
            .collect();
        series.sort_by(|(one, _), (other, _)| one.cmp(other));
        series
    }

    /// The counters that are not 0.
    pub(super) fn counts_of(series: &[(String, DebugValue)]) -> Vec<(String, u64)> {
        let counter = |(name, value): &(String, DebugValue)| match value {
            DebugValue::Counter(count) if *count > 0 => Some((name.clone(), *count)),
            _ => None,
        };
        series.iter().filter_map(counter).collect()
    }

    pub(super) fn histogram_of(series: &[(String, DebugValue)], name: &str) -> Vec<f64> {
        match series.iter().find(|(series, _)| series == name) {
            Some((_, DebugValue::Histogram(values))) => {
                values.iter().map(|value| value.into_inner()).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn counts(&self) -> Vec<(String, u64)> {
        Self::counts_of(&self.take())
    }

    pub(super) fn histogram(&self, name: &str) -> Vec<f64> {
        Self::histogram_of(&self.take(), name)
    }
}

/// The page that Prometheus reads: unlike a snapshot, reading it changes nothing.
pub(super) struct Page {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Page {
    pub(super) fn new() -> Self {
        let recorder: &'static _ = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _guard: set_default_local_recorder(recorder) }
    }

    /// The value of a series, as `name{label="value"}`.
    pub(super) fn value(&self, series: &str) -> Option<f64> {
        let page = self.handle.render();
        let mut lines = page.lines();
        lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    pub(super) fn len(&self) -> usize {
        self.handle.render().lines().filter(|line| !line.starts_with('#')).count()
    }
}

/// The counters of a limiter called `api`, without their labels `limiter`.
pub(super) fn of_api(counts: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let short = |(name, count): (String, u64)| {
        let name = name.replace("rate_limit_", "").replace("limiter=api", "").replace("{}", "");
        (name.replace("{,", "{"), count)
    };
    counts.into_iter().map(short).collect()
}

macro_rules! assert_counts {
    ($recorder:expr, $($name:literal: $count:expr),* $(,)?) => {
        let counts = $crate::recorder::of_api($recorder.counts());
        let counts: Vec<_> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
        assert_eq!(counts, [$(($name, $count)),*]);
    };
}
pub(super) use assert_counts;

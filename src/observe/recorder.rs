//! Handles of metrics. Each is looked up once, since a look-up costs more than a count.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, SharedString};

use super::catalog::{Metric, MetricKind};

/// Handles that are looked up when they are first needed and a recorder is installed. So limiters
/// and the recorder may be made in any order. Counts from before the recorder are lost.
#[derive(Debug)]
pub(crate) struct Handles<T>(OnceLock<T>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Handles<T> {
    /// `None` if there is no recorder.
    #[inline]
    pub(crate) fn get(&self, look_up: impl FnOnce() -> T) -> Option<&T> {
        match self.0.get() {
            Some(handles) => Some(handles),
            None if has_recorder() => Some(self.0.get_or_init(look_up)),
            None => None,
        }
    }
}

/// Returns true if the application has a recorder. The recorder that does nothing is known only by
/// its size, which is 0.
fn has_recorder() -> bool {
    metrics::with_recorder(|recorder| size_of_val(recorder) > 0)
}

const METADATA: Metadata<'static> =
    Metadata::new(env!("CARGO_PKG_NAME"), Level::INFO, Some(env!("CARGO_PKG_NAME")));

/// Makes the key of a metric, with the values of its labels in order.
fn key(metric: &Metric, values: &[Value<'_>]) -> Key {
    let labels = metric.labels.iter().zip(values).map(|(label, value)| {
        let value: SharedString = match value {
            Value::Name(name) => Arc::clone(name).into(),
            Value::Word(word) => (*word).into(),
        };
        Label::new(*label, value)
    });
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

/// The value of a label: a configured name, or a word of this crate.
pub(crate) enum Value<'a> {
    Name(&'a Arc<str>),
    Word(&'static str),
}

pub(crate) fn counter(metric: &Metric, values: &[Value<'_>]) -> Counter {
    describe(metric);
    metrics::with_recorder(|recorder| recorder.register_counter(&key(metric, values), &METADATA))
}

pub(crate) fn gauge(metric: &Metric, values: &[Value<'_>]) -> Gauge {
    describe(metric);
    metrics::with_recorder(|recorder| recorder.register_gauge(&key(metric, values), &METADATA))
}

pub(crate) fn histogram(metric: &Metric, values: &[Value<'_>]) -> Histogram {
    describe(metric);
    metrics::with_recorder(|recorder| recorder.register_histogram(&key(metric, values), &METADATA))
}

fn describe(metric: &Metric) {
    let (name, unit, help) = (metric.name.into(), Some(metric.unit), metric.help.into());
    metrics::with_recorder(|recorder| match metric.kind {
        MetricKind::Counter => recorder.describe_counter(name, unit, help),
        MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
        MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
    });
}

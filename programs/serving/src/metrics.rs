//! The counts of the process, as Prometheus reads them.
//!
//! A series is there while somebody holds its handle. So those of a policy leave with its row: an
//! exporter that keeps every name that it ever saw grows with each table. Values are counted where
//! they are read, so nothing runs while nobody asks.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder, SharedString,
    Unit,
};
use tower_sluice::observe::{BATCH_BUCKETS, SECONDS_BUCKETS};

/// The metrics of this process. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    families: Arc<Mutex<BTreeMap<Box<str>, Family>>>,
}

/// The series of one name, by their labels as the text has them.
#[derive(Debug, Default)]
struct Family {
    help: SharedString,
    series: BTreeMap<Box<str>, Series>,
}

#[derive(Debug)]
enum Series {
    Counter(Weak<AtomicU64>),
    /// The bits of a float.
    Gauge(Weak<AtomicU64>),
    Histogram(Weak<HistogramBuckets>),
}

/// The number of values that were at most as large as each bound, and their sum.
#[derive(Debug)]
struct HistogramBuckets {
    bounds: &'static [f64],
    /// One more than bounds: the last has none. Made for the first value.
    counts: OnceLock<Box<[AtomicU64]>>,
    /// The bits of a float.
    sum: AtomicU64,
}

impl Metrics {
    /// Begins to collect. Once for a process.
    pub fn install() -> Result<Self, String> {
        let this = Self::default();
        metrics::set_global_recorder(this.clone())
            .map_err(|error| format!("metrics cannot be collected: {error}"))?;
        Ok(this)
    }

    /// The count of a series, which is the one that others of this name and these labels count on.
    pub fn count(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Arc<AtomicU64> {
        let label = |(name, value): &(_, &str)| Label::new(*name, value.to_string());
        let labels: Vec<Label> = labels.iter().map(label).collect();
        self.counter(&Key::from_parts(name, labels))
    }

    /// Forgets the series that nobody counts on any more.
    pub fn sweep(&self) {
        let mut families = self.families();
        families.values_mut().for_each(|family| family.series.retain(|_, series| series.is_held()));
    }

    /// Prometheus' text format. A histogram that is empty is left out: it has 20 lines.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*self.families() {
            let mut kind = None;
            for (labels, series) in &family.series {
                let Some(value) = series.value() else { continue };
                if kind.is_none() {
                    let word = value.kind();
                    kind = Some(word);
                    if !family.help.is_empty() {
                        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
                        let _ = writeln!(text, "# HELP {name} {help}");
                    }
                    let _ = writeln!(text, "# TYPE {name} {word}");
                }
                value.write(&mut text, name, labels);
            }
        }
        text
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Family>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counter(&self, key: &Key) -> Arc<AtomicU64> {
        self.series(
            key,
            |series| match series {
                Series::Counter(count) => count.upgrade(),
                _ => None,
            },
            || {
                let count = Arc::new(AtomicU64::new(0));
                (Series::Counter(Arc::downgrade(&count)), count)
            },
        )
    }

    /// The series of a key as `held`, or the one that `new` makes in its place.
    fn series<T>(
        &self,
        key: &Key,
        held: impl Fn(&Series) -> Option<T>,
        new: impl FnOnce() -> (Series, T),
    ) -> T {
        let labels = labels(key);
        let mut families = self.families();
        let series = &mut family(&mut families, key.name()).series;
        if let Some(held) = series.get(&*labels).and_then(held) {
            return held;
        }
        let (made, handle) = new();
        series.insert(labels, made);
        handle
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        family(&mut self.families(), name.as_str()).help = help;
    }
}

fn family<'a>(families: &'a mut BTreeMap<Box<str>, Family>, name: &str) -> &'a mut Family {
    if !families.contains_key(name) {
        families.insert(name.into(), Family::default());
    }
    families.get_mut(name).expect("it was inserted")
}

/// Labels as the text has them: `limiter="api",outcome="denied"`.
fn labels(key: &Key) -> Box<str> {
    let mut text = String::new();
    for label in key.labels() {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{}=\"", label.key());
        for letter in label.value().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    text.into_boxed_str()
}

impl Recorder for Metrics {
    fn describe_counter(&self, name: KeyName, _unit: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_gauge(&self, name: KeyName, _unit: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_histogram(&self, name: KeyName, _unit: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn register_counter(&self, key: &Key, _metadata: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.counter(key))
    }

    fn register_gauge(&self, key: &Key, _metadata: &Metadata<'_>) -> Gauge {
        let gauge = self.series(
            key,
            |series| match series {
                Series::Gauge(value) => value.upgrade(),
                _ => None,
            },
            || {
                let value = Arc::new(AtomicU64::new(0.0_f64.to_bits()));
                (Series::Gauge(Arc::downgrade(&value)), value)
            },
        );
        Gauge::from_arc(gauge)
    }

    fn register_histogram(&self, key: &Key, _metadata: &Metadata<'_>) -> Histogram {
        let histogram = self.series(
            key,
            |series| match series {
                Series::Histogram(buckets) => buckets.upgrade(),
                _ => None,
            },
            || {
                let is_size = key.name().ends_with("_batch_size");
                let bounds = if is_size { BATCH_BUCKETS } else { SECONDS_BUCKETS };
                let buckets = Arc::new(HistogramBuckets::new(bounds));
                (Series::Histogram(Arc::downgrade(&buckets)), buckets)
            },
        );
        Histogram::from_arc(histogram)
    }
}

impl HistogramBuckets {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: OnceLock::new(), sum: AtomicU64::new(0.0_f64.to_bits()) }
    }
}

impl HistogramFn for HistogramBuckets {
    fn record(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let none = || (0..=self.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        self.counts.get_or_init(none)[bucket].fetch_add(1, Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self.sum.fetch_update(Relaxed, Relaxed, add);
    }
}

/// The value of a series.
enum SeriesValue {
    Counter(u64),
    Gauge(f64),
    Histogram(Arc<HistogramBuckets>),
}

impl Series {
    fn is_held(&self) -> bool {
        match self {
            Self::Counter(held) | Self::Gauge(held) => held.strong_count() > 0,
            Self::Histogram(held) => held.strong_count() > 0,
        }
    }

    /// `None` if nobody counts on it, or it is an empty histogram.
    fn value(&self) -> Option<SeriesValue> {
        Some(match self {
            Self::Counter(count) => SeriesValue::Counter(count.upgrade()?.load(Relaxed)),
            Self::Gauge(value) => {
                SeriesValue::Gauge(f64::from_bits(value.upgrade()?.load(Relaxed)))
            }
            Self::Histogram(buckets) => {
                let buckets = buckets.upgrade()?;
                SeriesValue::Histogram(Some(buckets).filter(|one| one.counts.get().is_some())?)
            }
        })
    }
}

impl SeriesValue {
    fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        match self {
            Self::Counter(count) => line(text, name, "", labels, count),
            Self::Gauge(value) => line(text, name, "", labels, value),
            Self::Histogram(buckets) => {
                let comma = if labels.is_empty() { "" } else { "," };
                let mut count = 0;
                for (place, own) in buckets.counts.get().into_iter().flatten().enumerate() {
                    count += own.load(Relaxed);
                    let bound = buckets.bounds.get(place).copied().unwrap_or(f64::INFINITY);
                    let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".into() };
                    let labels = format!("{labels}{comma}le=\"{bound}\"");
                    line(text, name, "_bucket", &labels, count);
                }
                line(text, name, "_sum", labels, f64::from_bits(buckets.sum.load(Relaxed)));
                line(text, name, "_count", labels, count);
            }
        }
    }
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &str, value: impl fmt::Display) {
    text.push_str(name);
    text.push_str(suffix);
    if !labels.is_empty() {
        text.extend(["{", labels, "}"]);
    }
    let _ = writeln!(text, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: Metadata<'static> = Metadata::new("", metrics::Level::INFO, None);

    fn key(name: &'static str, limiter: &str) -> Key {
        Key::from_parts(name, vec![Label::new("limiter", limiter.to_owned())])
    }

    #[test]
    fn the_text_is_as_prometheus_reads_it() {
        let metrics = Metrics::default();
        metrics.describe_counter("a_total".into(), None, "Units\\\nof it.".into());
        let counter = metrics.register_counter(&key("a_total", "x\"y\\"), &METADATA);
        let gauge = metrics.register_gauge(&Key::from_name("b"), &METADATA);
        let sizes = metrics.register_histogram(&key("c_batch_size", "x"), &METADATA);
        let _empty = metrics.register_histogram(&key("d_seconds", "x"), &METADATA);
        counter.increment(3);
        gauge.set(1.5);
        [1.0, 1.5, 5_000.0].into_iter().for_each(|size| sizes.record(size));
        let text = metrics.render();
        let expected = "# HELP a_total Units\\\\\\nof it.\n# TYPE a_total counter\n\
                        a_total{limiter=\"x\\\"y\\\\\"} 3\n# TYPE b gauge\nb 1.5\n\
                        # TYPE c_batch_size histogram\n\
                        c_batch_size_bucket{limiter=\"x\",le=\"1\"} 1\n\
                        c_batch_size_bucket{limiter=\"x\",le=\"2\"} 2\n";
        assert!(text.starts_with(expected), "{text}");
        let end = "c_batch_size_bucket{limiter=\"x\",le=\"1024\"} 2\n\
                   c_batch_size_bucket{limiter=\"x\",le=\"+Inf\"} 3\n\
                   c_batch_size_sum{limiter=\"x\"} 5002.5\nc_batch_size_count{limiter=\"x\"} 3\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_series_is_there_while_somebody_counts_on_it() {
        let metrics = Metrics::default();
        let first = metrics.register_counter(&key("a_total", "x"), &METADATA);
        let count = metrics.count("a_total", &[("limiter", "x")]);
        first.increment(2);
        assert_eq!(count.load(Relaxed), 2);
        drop(first);
        assert!(metrics.render().contains("a_total{limiter=\"x\"} 2\n"));
        drop(count);
        assert_eq!(metrics.render(), "");
        metrics.sweep();
        assert!(metrics.families().values().all(|family| family.series.is_empty()));
        assert_eq!(metrics.count("a_total", &[("limiter", "x")]).load(Relaxed), 0);
    }
}

//! The events that are traced, with a subscriber that the test reads.

use std::fmt::{Debug, Write};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};
use tokio::time::advance;
use tokio_test::{assert_pending, task};
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::limiter::{Breaker, MetricsExt, Operation, TraceExt};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Quota,
};
use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Level, Subscriber, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::{SECOND, one};

/// A subscriber of this thread that writes each event in a line: level, target, span, message and
/// fields.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(super) fn listen() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = set_default(Registry::default().with(lines.clone()));
        (lines, guard)
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Those of one target.
    pub(super) fn of(&self, target: &str) -> Vec<String> {
        let target = format!(" tower_sluice::{target} ");
        self.take().into_iter().filter(|line| line.contains(&target)).collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                write!(self.0, " {}={value:?}", field.name()).unwrap();
            }
        }
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let span = context.event_span(event).map_or("", |span| span.name());
        let mut text = Text(format!("{level} {target} {span}"));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_decision_is_one_event_in_the_span_of_its_caller() {
    let (lines, _guard) = Lines::listen();
    let store = Memory::new("bucket", TokenBucket::new(Quota::per_hour(1)));
    let limiter = store.trace("api");
    let _span = info_span!("request").entered();
    let _ = limiter.check(&one()).await.unwrap();
    let _ = limiter.check(&one()).await.unwrap();
    let lines = lines.take();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let begin = "DEBUG tower_sluice::decision request ";
    assert!(lines.iter().all(|line| line.starts_with(begin)), "{lines:#?}");
    for part in ["limiter=\"api\"", "outcome=\"admitted\"", "policy=\"bucket\"", "remaining=0"] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    assert!(lines[0].contains("cost=1") && lines[0].contains("origin=\"local\""));
    assert!(
        lines[1].contains("outcome=\"denied\"") && lines[1].contains("retry_after_seconds=3600")
    );
}

#[tokio::test(start_paused = true)]
async fn an_outcome_says_what_happened() {
    let (lines, _guard) = Lines::listen();
    let store = Scripted::new().wait(SECOND).retry(SECOND).retry(2 * SECOND).never();
    let store = store.fail(ErrorKind::Infrastructure).fail(ErrorKind::Capacity);
    let limiter = store.or_else(FailOpen).trace("api");
    for _ in 0..6 {
        let _ = limiter.check(&one().max_wait(SECOND)).await;
    }
    let outcomes: Vec<_> = lines
        .of("decision")
        .iter()
        .map(|line| line.split("outcome=\"").nth(1).unwrap().split('"').next().unwrap().to_owned())
        .collect();
    let expected = ["delayed", "asks again", "denied", "denied", "failed open", "undecided"];
    assert_eq!(outcomes, expected);
}

// Case 87.
#[tokio::test(start_paused = true)]
async fn no_event_shows_a_key_unless_it_is_asked_to() {
    let (lines, _guard) = Lines::listen();
    let key = "alice@example.com";
    let charge = Charge::new(key);
    let store = || {
        let store = Scripted::new().allow().fail(ErrorKind::Infrastructure);
        store.fail(ErrorKind::Request).or_else(FailOpen)
    };
    let ask = async |limiter: &dyn Fn() -> tower_sluice::limiter::Boxed| {
        let limiter = limiter();
        for _ in 0..3 {
            let _ = limiter.check(&charge).await;
        }
    };
    ask(&|| store().trace("api").boxed()).await;
    let shown = lines.take();
    assert!(shown.len() >= 5 && shown.iter().all(|line| !line.contains("alice")), "{shown:#?}");
    assert!(shown.iter().all(|line| !line.contains(" key=")));

    ask(&|| store().trace("api").key_digests().boxed()).await;
    let shown = lines.take();
    assert!(shown.iter().all(|line| !line.contains("alice")), "{shown:#?}");
    // The first half of its SHA-256.
    let digest = "key=\"h:ff8d9819fc0e12bf0d24892e45987e24\"";
    assert_eq!(shown.iter().filter(|line| line.contains(digest)).count(), 3, "{shown:#?}");

    ask(&|| store().trace("api").raw_keys().boxed()).await;
    let shown = lines.of("decision");
    assert!(shown.iter().all(|line| line.contains("key=\"alice@example.com\"")));

    let several = Charge::new((key, ("192.0.2.1", "all")));
    for (limiter, found) in [
        (store().trace("api"), None),
        (store().trace("api").raw_keys(), Some("key=\"alice@example.com,192.0.2.1,all\"")),
        (store().trace("api").key_digests(), Some(&digest[..digest.len() - 1])),
    ] {
        let _ = limiter.check(&several).await;
        let shown = lines.of("decision");
        let is_found = |line: &String| match found {
            Some(found) => line.contains(found),
            None => !line.contains(" key="),
        };
        assert!(!shown.is_empty() && shown.iter().all(is_found), "{shown:#?}");
    }
    // An absent part leaves its place empty.
    let [one, other] = ["alice", "all"].map(|key| Some(Charge::new(key)));
    let _ = store().trace("api").raw_keys().check(&Charge::several([one, None, other])).await;
    assert!(lines.of("decision")[0].contains("key=\"alice,,all\""));
}

#[tokio::test(start_paused = true)]
async fn faults_are_warned_of_once_a_second_for_each_kind() {
    let (lines, _guard) = Lines::listen();
    let away = |_: &Charge| {
        let error = Error::new(ErrorKind::Infrastructure, "no connection");
        let error = error.with_source(std::io::Error::other("refused"));
        std::future::ready(Err::<Decision, _>(error))
    };
    let full = |_: &Charge| {
        std::future::ready(Err::<Decision, _>(Error::new(ErrorKind::Capacity, "full")))
    };
    let (open, undecided, full) =
        (away.or_else(FailOpen).trace("open"), away.trace("bare"), full.trace("bare"));
    for _ in 0..25 {
        let _ = open.check(&one()).await.unwrap();
        undecided.check(&one()).await.unwrap_err();
        full.check(&one()).await.unwrap_err();
        tokio::time::advance(SECOND / 10).await;
    }
    let faults = lines.of("fault");
    assert!(faults.iter().all(|line| line.starts_with("WARN ")));
    let of = |part: &str| -> Vec<_> {
        let suppressed = |line: &String| line.split("suppressed=").nth(1).unwrap().to_owned();
        faults.iter().filter(|line| line.contains(part)).map(suppressed).collect()
    };
    assert_eq!(of("origin=\"fail_open\" admitted=true"), ["0", "9", "9"]);
    assert_eq!(
        of("message=a limiter could not decide limiter=\"bare\" kind=\"infrastructure\""),
        ["0", "9", "9"]
    );
    assert_eq!(of("kind=\"capacity\""), ["0", "9", "9"]);
    assert_eq!(faults.len(), 9, "{faults:#?}");
    assert!(faults[0].contains("no connection: refused"), "{}", faults[0]);
}

#[tokio::test(start_paused = true)]
async fn what_hides_an_error_still_shows_it() {
    let (lines, _guard) = Lines::listen();
    let share = Memory::new("share", TokenBucket::new(Quota::per_hour(1)));
    let store = Scripted::new().fail(ErrorKind::Saturation);
    let _ = store.or_else(share).trace("api").check(&one()).await.unwrap();
    let _ =
        Scripted::new().fail(ErrorKind::State).shadow().trace("api").check(&one()).await.unwrap();
    let faults = lines.of("fault");
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert!(faults[0].contains("kind=\"saturation\"") && faults[0].contains("origin=\"local\""));
    assert!(faults[1].contains("kind=\"state\"") && faults[1].contains("origin=\"shadow\""));
    let answers = ["and its fallback answers", "and its shadow admits"];
    for (fault, answers) in faults.iter().zip(answers) {
        assert!(fault.contains(answers), "{answers} in {fault}");
    }
    // The fallback answers, and the shadow had nothing to hide.
    let store = Scripted::new().fail(ErrorKind::Infrastructure);
    let _ = store.or_else(FailOpen).shadow().trace("api").check(&one()).await.unwrap();
    assert!(lines.of("fault")[0].contains("and its fallback answers"));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_says_when_it_opens_and_closes() {
    let (lines, _guard) = Lines::listen();
    let store = (0..5).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure));
    let limiter = store.allow().breaker(Breaker::new().name("redis"));
    for _ in 0..5 {
        limiter.check(&one()).await.unwrap_err();
    }
    tokio::time::sleep(SECOND).await;
    let _ = limiter.check(&one()).await.unwrap();
    let lines = lines.of("breaker");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].starts_with("WARN ") && lines[0].contains("a breaker opened breaker=\"redis\"")
    );
    assert!(lines[0].contains("as scripted"), "{}", lines[0]);
    assert!(
        lines[1].starts_with("INFO ") && lines[1].contains("a breaker closed breaker=\"redis\"")
    );
}

/// A subscriber may itself ask a limiter of the breaker.
#[tokio::test(start_paused = true)]
async fn no_lock_is_held_while_an_event_is_written() {
    struct Asks(Breaker);
    impl<S: Subscriber> Layer<S> for Asks {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            let _ = self.0.state();
        }
    }
    let breaker = Breaker::new();
    let _guard = set_default(Registry::default().with(Asks(breaker.clone())));
    let store = (0..5).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure));
    let limiter = store.breaker(breaker);
    for _ in 0..6 {
        limiter.check(&one()).await.unwrap_err();
    }
}

type Called = Arc<dyn Fn() + Send + Sync>;

/// A recorder that runs code when a counter is looked up, and when something is counted.
#[derive(Clone)]
struct Asks {
    on_look_up: Called,
    on_count: Called,
}

impl GaugeFn for Asks {
    fn set(&self, _: f64) {
        (self.on_count)();
    }
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
}

impl CounterFn for Asks {
    fn increment(&self, _: u64) {
        (self.on_count)();
    }
    fn absolute(&self, _: u64) {}
}

impl Recorder for Asks {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        (self.on_look_up)();
        Counter::from_arc(Arc::new(self.clone()))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.clone()))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A gauge may do so too.
#[tokio::test(start_paused = true)]
async fn no_lock_is_held_while_a_gauge_is_set() {
    let breaker = Breaker::new().name("redis");
    let own = breaker.clone();
    let asks: Called = Arc::new(move || _ = own.state());
    let recorder = Asks { on_look_up: asks.clone(), on_count: asks };
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = (0..5).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure));
    let limiter = store.allow().breaker(breaker);
    for _ in 0..6 {
        limiter.check(&one()).await.unwrap_err();
    }
    advance(Duration::from_secs(60)).await;
    assert!(limiter.check(&one()).await.unwrap().is_admitted(), "a probe");
}

/// A counter of a policy may ask the limiter that counts it.
#[tokio::test(start_paused = true)]
async fn no_lock_is_held_while_a_policy_is_counted() {
    let memory = Memory::new("api", TokenBucket::new(Quota::per_hour(10)));
    let limiter = memory.metrics("all").per_policy();
    let (asked, counting) = (limiter.clone(), AtomicBool::new(false));
    let ask = move || {
        if !counting.swap(true, Ordering::Relaxed) {
            assert!(task::spawn(asked.check(&one())).poll().is_ready());
            counting.store(false, Ordering::Relaxed);
        }
    };
    let recorder = Asks { on_look_up: Arc::new(|| {}), on_count: Arc::new(ask) };
    let _guard = metrics::set_default_local_recorder(&recorder);
    for left in [9, 7] {
        assert_eq!(limiter.check(&one()).await.unwrap().remaining(), Some(left));
    }
}

#[tokio::test(start_paused = true)]
async fn refunds_operations_peeks_and_dropped_futures_are_no_events() {
    let (lines, _guard) = Lines::listen();
    let scripted = Scripted::new().allow().allow();
    let limiter = scripted.clone().trace("api");
    let _ = limiter.peek("key").await.unwrap();
    let _ = limiter.estimate("key").await.unwrap();
    limiter.penalize("key").await.unwrap();
    limiter.reset("key").await.unwrap();
    let operations: Vec<_> = scripted.operations().into_iter().map(|(what, _)| what).collect();
    assert_eq!(operations, [Operation::Estimate, Operation::Penalize, Operation::Reset]);
    let silent = |_: &Charge| pending::<Result<Decision, Error>>();
    let mut check = task::spawn(silent.trace("api").check(&one()));
    assert_pending!(check.poll());
    drop(check);
    assert_eq!(lines.take(), [] as [&str; 0]);

    let reservation = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    limiter.refund(reservation).unwrap();
    assert_eq!(scripted.settlements(), [(1, 0)]);
    assert_eq!(lines.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn units_that_could_not_be_taken_are_an_event() {
    let (lines, _guard) = Lines::listen();
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(10))).trace("api");
    for used in [10, 15] {
        let taken = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
        limiter.settle(taken, used).unwrap().await.unwrap();
        limiter.reset(one()).await.unwrap();
    }
    let lines = lines.take();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[2].contains("a limit could not take all that was used"), "{lines:#?}");
    assert!(lines[2].contains("units=4"), "{lines:#?}");
}

/// Callers may send as many as they like, so they fill no log.
#[tokio::test(start_paused = true)]
async fn what_a_request_holds_is_warned_of_by_no_limiter() {
    let (lines, _guard) = Lines::listen();
    let (limiter, shadow) =
        (Scripted::new().fail(ErrorKind::Request), Scripted::new().fail(ErrorKind::Request));
    limiter.trace("api").check(&one()).await.unwrap_err();
    let _ = shadow.shadow().trace("api").check(&one()).await.unwrap();
    let lines = lines.take();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for line in lines {
        assert!(line.starts_with("DEBUG ") && line.contains("kind=\"request\""), "{line}");
    }
}

/// Faults are warned of also where decisions are not shown.
#[tokio::test(start_paused = true)]
async fn who_listens_to_warnings_alone_gets_no_decisions() {
    let lines = Lines::default();
    let filter = tracing_subscriber::filter::LevelFilter::from_level(Level::WARN);
    let _guard = set_default(Registry::default().with(lines.clone()).with(filter));
    let limiter = Scripted::new().allow().fail(ErrorKind::State).trace("api").raw_keys();
    let _ = limiter.check(&one()).await.unwrap();
    limiter.check(&one()).await.unwrap_err();
    let lines = lines.take();
    assert!(lines.len() == 1 && lines[0].starts_with("WARN tower_sluice::fault"), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_says_when_it_begins_to_answer_and_when_it_ends() {
    let (lines, _guard) = Lines::listen();
    let away = |store: Scripted| store.fail(ErrorKind::Infrastructure);
    let store = away(away(Scripted::new().allow())).allow().allow();
    let share = Memory::new("api alone", TokenBucket::new(Quota::per_second(10)));
    let limiter = store.or_else(share);
    for (asked, said) in [
        (1, None),
        (2, Some("WARN tower_sluice::fallback  message=a fallback answers from now on")),
        (3, None),
        (4, Some("INFO tower_sluice::fallback  message=the limiter decides again")),
        (5, None),
    ] {
        let _ = limiter.check(&one()).await.unwrap();
        let lines = lines.of("fallback");
        assert_eq!(lines.len(), usize::from(said.is_some()), "{asked}: {lines:?}");
        if let Some(said) = said {
            assert!(lines[0].starts_with(said), "{lines:?}");
        }
        if asked == 2 {
            for part in ["fallback=\"api alone\"", "origin=\"local\"", "kind=\"infrastructure\""] {
                assert!(lines[0].contains(part), "{part} in {}", lines[0]);
            }
        }
    }
    let _ = away(Scripted::new()).or_else(FailOpen).check(&one()).await.unwrap();
    assert!(lines.of("fallback")[0].contains("origin=\"fail_open\""));
}

#[cfg(feature = "policies")]
#[test]
fn a_table_of_policies_says_how_many_of_them_limit() {
    use tower_sluice_policies::{Policies, Row, Rows};

    let (lines, _guard) = Lines::listen();
    let row = |name: &str| Row::new().with("name", name).with("limit", 1).with("period", "1s");
    let (off, shadow) = (row("b").with("enabled", false), row("c").with("shadow", true));
    let policies = Policies::builder().build(&Rows::from_iter([row("a"), off, shadow])).unwrap();
    policies.load(&Rows::none()).unwrap();
    policies.load(&Rows::default()).unwrap_err();
    let lines = lines.of("policies");
    let expected = [
        ("INFO", "policies are in force", "policies=3 on=1 shadow=1 off=1"),
        ("WARN", "no policy limits anything", "policies=0 on=0 shadow=0 off=0"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (level, message, counts)) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(level) && line.contains(message) && line.contains(counts),
            "{line}"
        );
    }
}

/// As if the layer were inside of a router that strips the prefix of its rows.
#[cfg(all(feature = "metrics", feature = "policies"))]
#[tokio::test(start_paused = true)]
async fn a_table_that_takes_none_of_its_first_requests_warns_once() {
    use tower_sluice_policies::{Policies, Row, Rows};

    let rows = |path| {
        let row = Row::new().with("name", "api").with("limit", 5).with("period", "1h");
        Rows::from_iter([row.with("match", path)])
    };
    let (recorder, (lines, _guard)) = (super::recorder::Recorder::new(), Lines::listen());
    let policies = Policies::builder().build(&rows("/api/login")).unwrap();
    let ask = |path: &str, times: usize| {
        let request = http::Request::get(path).body(()).unwrap();
        for _ in 0..times {
            let _ = policies.charge((&request).into());
        }
    };
    let warnings = || {
        let lines = lines.of("policies").into_iter();
        lines.filter(|line| line.starts_with("WARN")).collect::<Vec<_>>()
    };
    ask("/login", 999);
    // A table of the same rows goes on counting.
    policies.load(&rows("/api/login")).unwrap();
    assert_eq!(warnings().len(), 0);
    ask("/login", 2_000);
    let warned = warnings();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("no policy took any of the first requests"), "{warned:?}");
    assert!(warned[0].contains("policies=1") && warned[0].contains("requests=1000"), "{warned:?}");

    // Another table is counted anew. One that takes a request warns no more.
    policies.load(&rows("/login")).unwrap();
    ask("/login", 1);
    ask("/other", 2_000);
    assert_eq!(warnings().len(), 0);
    let unmatched = (String::from("rate_limit_unmatched_total{}"), 2_999 + 2_000);
    assert!(recorder.counts().contains(&unmatched));
    // Without rows there is nothing to warn of.
    policies.load(&Rows::none()).unwrap();
    let _ = lines.take();
    ask("/login", 2_000);
    assert_eq!(warnings().len(), 0);
}

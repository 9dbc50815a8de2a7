//! The counts of one limiter.

use std::future::pending;
use std::time::Duration;

use ::metrics::Label;
use metrics_util::debugging::DebugValue;
use tokio_test::{assert_pending, task};
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::limiter::{Breaker, MetricsExt, Operation, Switch, SwitchMode};
use tower_sluice::observe::{METRICS, Meter, MetricKind};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Outcome, Quota,
};

use super::recorder::{Page, Recorder, assert_counts, of_api};
use super::{SECOND, one};

/// What a limiter decides, and what is counted of it.
#[tokio::test(start_paused = true)]
async fn each_charge_counts_once_by_its_outcome() {
    let store = Scripted::new;
    let share = Memory::new("share", TokenBucket::new(Quota::per_hour(1)));
    let (switch, meter) = (Switch::new(), Meter::new("api"));
    switch.set(SwitchMode::Off);
    assert_eq!(meter.limiter(), "api");
    let own = meter.clone();
    for (limiter, asks, counts) in [
        (
            // Nothing is left of a wait of a second after a pause that was a little longer.
            store().allow().deny(SECOND).never().fail(ErrorKind::Capacity).metrics("api").boxed(),
            4,
            "decisions_total{outcome=admitted} 1, decisions_total{outcome=denied} 2, \
             decisions_total{outcome=undecided} 1, errors_total{kind=capacity} 1",
        ),
        (
            store().fail(ErrorKind::Infrastructure).or_else(FailOpen).metrics("api").boxed(),
            1,
            "errors_total{kind=infrastructure} 1, fail_open_total 1",
        ),
        (
            store().fail(ErrorKind::Saturation).or_else(FailOpen).metrics("api").boxed(),
            1,
            "decisions_total{outcome=undecided} 1, errors_total{kind=saturation} 1",
        ),
        (store().switch(&switch).metrics("api").boxed(), 1, "switched_off_total 1"),
        // Its cause is an error.
        (
            store()
                .fail(ErrorKind::Saturation)
                .fail(ErrorKind::Infrastructure)
                .or_else(share)
                .metrics("api")
                .boxed(),
            2,
            "decisions_total{outcome=admitted} 1, decisions_total{outcome=denied} 1, \
             errors_total{kind=infrastructure} 1, errors_total{kind=saturation} 1, \
             fallbacks_total 2",
        ),
        // A shadow counts what would have been, and what a gate that failed open admits is open.
        (
            store()
                .allow()
                .wait(SECOND)
                .deny(SECOND)
                .retry(2 * SECOND)
                .fail(ErrorKind::Infrastructure)
                .shadow()
                .metrics("api")
                .boxed(),
            5,
            "decisions_total{outcome=admitted} 1, decisions_total{outcome=delayed} 1, \
             decisions_total{outcome=denied} 2, decisions_total{outcome=undecided} 1, \
             errors_total{kind=infrastructure} 1, shadow_refusals_total{outcome=denied} 2, \
             shadow_refusals_total{outcome=undecided} 1",
        ),
        (
            store()
                .fail(ErrorKind::Infrastructure)
                .or_else(FailOpen)
                .shadow()
                .metrics("api")
                .boxed(),
            1,
            "errors_total{kind=infrastructure} 1, fail_open_total 1",
        ),
        // A meter of one's own counts in a closure.
        (
            store()
                .allow()
                .deny(SECOND)
                .inspect(move |charge, result| own.record(charge, result))
                .boxed(),
            2,
            "decisions_total{outcome=admitted} 1, decisions_total{outcome=denied} 1",
        ),
    ] {
        let recorder = Recorder::new();
        for _ in 0..asks {
            let _ = limiter.check(&one().max_wait(SECOND)).await;
        }
        let told = of_api(recorder.counts());
        let told: Vec<_> = told.iter().map(|(name, count)| format!("{name} {count}")).collect();
        assert_eq!(told.join(", "), counts);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_counted_with_its_wait_whether_it_was_reserved_or_not() {
    let recorder = Recorder::new();
    let inner = Scripted::new().wait(SECOND).retry(SECOND).retry(SECOND).allow();
    let limiter = inner.metrics("api");
    limiter.acquire(one().max_wait(10 * SECOND)).await.unwrap();
    let asked_again = limiter.acquire(one().max_wait(10 * SECOND)).await.unwrap();
    assert!(asked_again.waited() >= 2 * SECOND);
    let series = recorder.take();
    let waits = Recorder::histogram_of(&series, "rate_limit_wait_seconds{limiter=api}");
    assert_eq!((waits.len(), waits[0]), (2, 1.0));
    assert!((2.0..2.01).contains(&waits[1]), "{waits:?}");
    let delayed = "rate_limit_decisions_total{limiter=api,outcome=delayed}";
    assert_eq!(Recorder::counts_of(&series), [(delayed.to_owned(), 2)]);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_a_gauge_also_if_they_leave() {
    let page = Page::new();
    let waiters = || page.value("rate_limit_waiters{limiter=\"api\"}").unwrap();
    let outer = || page.value("rate_limit_waiters{limiter=\"outer\"}").unwrap();
    let inner = Scripted::new().wait(SECOND).wait(SECOND).retry(SECOND).allow();
    let limiter = inner.metrics("api").metrics("outer");
    let charge = || one().max_wait(10 * SECOND);
    let mut first = task::spawn(limiter.acquire(charge()));
    let mut second = task::spawn(limiter.acquire(charge()));
    let mut third = task::spawn(limiter.acquire(charge()));
    assert_eq!(waiters(), 0.0);
    for waiting in [&mut first, &mut second, &mut third] {
        assert_pending!(waiting.poll());
    }
    assert_eq!((waiters(), outer()), (3.0, 3.0));
    drop(first);
    assert_eq!((waiters(), outer()), (2.0, 2.0));
    tokio::time::sleep(2 * SECOND).await;
    second.await.unwrap();
    assert_eq!(waiters(), 1.0);
    third.await.unwrap();
    assert_eq!((waiters(), outer()), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_is_abandoned_and_one_that_never_began_is_nothing() {
    let recorder = Recorder::new();
    let silent = |_: &Charge| pending::<Result<Decision, Error>>();
    let limiter = silent.metrics("api");
    drop(limiter.check(&one()));
    assert_counts!(recorder,);
    let mut check = task::spawn(limiter.check(&one()));
    assert_pending!(check.poll());
    drop(check);
    assert_counts!(recorder, "abandoned_total": 1);
    assert_eq!(recorder.histogram("rate_limit_decision_seconds{limiter=api}"), [] as [f64; 0]);
}

#[tokio::test(start_paused = true)]
async fn two_limiters_of_one_name_count_together() {
    let recorder = Recorder::new();
    let (first, second) =
        (Scripted::new().allow().never().metrics("api"), Scripted::new().allow().metrics("api"));
    for limiter in [&first, &first, &second] {
        let _ = limiter.check(&one()).await.unwrap();
    }
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 2,
        "decisions_total{outcome=denied}": 1);
}

#[tokio::test(start_paused = true)]
async fn times_begin_with_the_first_poll() {
    let recorder = Recorder::new();
    let slow = |_: &Charge| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(Decision::new(Outcome::Allow))
    };
    let limiter = slow.metrics("api");
    let check = limiter.check(&one());
    tokio::time::advance(SECOND).await;
    let _ = check.await.unwrap();
    let times = recorder.histogram("rate_limit_decision_seconds{limiter=api}");
    assert!(times.len() == 1 && (0.02..0.03).contains(&times[0]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn peeks_and_operations_pass_uncounted() {
    let recorder = Recorder::new();
    let scripted = Scripted::new().allow().allow();
    let limiter = scripted.clone().metrics("api");
    let _ = limiter.peek("key").await.unwrap();
    let _ = limiter.estimate("key").await.unwrap();
    limiter.penalize("key").await.unwrap();
    limiter.reset("key").await.unwrap();
    assert_counts!(recorder,);
    let operations: Vec<_> = scripted.operations().into_iter().map(|(what, _)| what).collect();
    assert_eq!(operations, [Operation::Estimate, Operation::Penalize, Operation::Reset]);

    let reservation = limiter.check(&one().cost(3)).await.unwrap().take_reservation().unwrap();
    limiter.settle(reservation, 1).unwrap();
    assert_eq!(scripted.settlements(), [(1, 1)]);
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 1,
        "settled_units_total{units=charged}": 3, "settled_units_total{units=given_back}": 2);
}

#[tokio::test(start_paused = true)]
async fn units_that_cannot_be_given_back_are_counted_as_lost() {
    let recorder = Recorder::new();
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_hour(1_000))).metrics("api");
    let mut decisions = Vec::new();
    for _ in 0..2 {
        decisions.push(limiter.check(&one().cost(100)).await.unwrap());
    }
    // The second was decided on the first.
    for decision in &mut decisions {
        drop(limiter.settle(decision.take_reservation().unwrap(), 10).unwrap());
    }
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 2,
        "settled_units_total{units=charged}": 200, "settled_units_total{units=given_back}": 90,
        "settled_units_total{units=lost}": 90);
    let taken = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    // More than was charged is neither given back nor lost.
    limiter.settle(taken, 5).unwrap().await.unwrap();
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 1,
        "settled_units_total{units=charged}": 1);
}

#[tokio::test(start_paused = true)]
async fn units_that_could_not_be_taken_are_counted() {
    let recorder = Recorder::new();
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(10))).metrics("api");
    let taken = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    limiter.settle(taken, 15).unwrap().await.unwrap();
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 1,
        "settled_units_total{units=charged}": 1, "settled_units_total{units=not_taken}": 4);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_shows_its_state_and_what_it_refuses() {
    let page = Page::new();
    let state = || page.value("rate_limit_breaker_state{breaker=\"redis\"}");
    let store = (0..5).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure));
    let breaker = Breaker::new().name("redis").min_failures(5);
    let limiter = store.clone().breaker(breaker.clone());
    assert_eq!(state(), Some(0.0));
    for _ in 0..7 {
        limiter.check(&one()).await.unwrap_err();
    }
    assert_eq!(state(), Some(2.0));
    let refusals = page.value("rate_limit_breaker_refusals_total{breaker=\"redis\"}");
    assert_eq!(refusals, Some(2.0));
    tokio::time::sleep(SECOND).await;
    // The probe is the next call.
    let silent = |_: &Charge| pending::<Result<Decision, Error>>();
    let mut probe = task::spawn(silent.breaker(breaker).check(&one()));
    assert_pending!(probe.poll());
    assert_eq!(state(), Some(1.0));
    drop(probe);
    let _store = store.allow();
    let _ = limiter.check(&one()).await.unwrap();
    assert_eq!(state(), Some(0.0));
    // Without a name there is no metric.
    let before = page.len();
    let _ = Scripted::new().allow().breaker(Breaker::new()).check(&one()).await.unwrap();
    assert_eq!(page.len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_comes_late_sees_the_state_of_an_open_breaker() {
    let store = (0..5).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure));
    let limiter = store.breaker(Breaker::new().name("redis").min_failures(5));
    for _ in 0..5 {
        limiter.check(&one()).await.unwrap_err();
    }
    let page = Page::new();
    limiter.check(&one()).await.unwrap_err();
    assert_eq!(page.value("rate_limit_breaker_state{breaker=\"redis\"}"), Some(2.0));
}

// Case 87.
#[tokio::test(start_paused = true)]
async fn the_number_of_series_does_not_depend_on_the_number_of_keys() {
    let recorder = Recorder::new();
    let bucket = TokenBucket::new(Quota::per_hour(1));
    let store = Memory::new("api", bucket).max_keys(200_000);
    let limiter = store.or_else(FailOpen).shadow().metrics("api");
    let _ = limiter.check(&one()).await.unwrap();
    let before = recorder.take().len();
    // A name has 17 counters, a gauge and two histograms.
    assert_eq!(before, 20);
    for key in 0..100_000 {
        let charge = Charge::new(format!("key-{key}"));
        let _ = limiter.check(&charge).await.unwrap();
        let _ = limiter.check(&charge).await.unwrap();
    }
    let after = recorder.take();
    assert_eq!(after.len(), before);
    let admitted = "rate_limit_decisions_total{limiter=api,outcome=admitted}";
    assert!(after.contains(&(admitted.into(), DebugValue::Counter(100_000))));
    assert!(after.iter().all(|(series, _)| !series.contains("key-")));
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_is_installed_later_counts_from_then_on() {
    let limiter = Scripted::new().allow().allow().metrics("api");
    let _ = limiter.check(&one()).await.unwrap();
    let recorder = Recorder::new();
    let _ = limiter.check(&one()).await.unwrap();
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 1);
}

/// Each name in the list is one that the crate registers, with its type, unit, labels and help.
#[tokio::test(start_paused = true)]
async fn what_is_registered_is_in_the_list() {
    let recorder = Recorder::new();
    let _limiter = Scripted::new().breaker(Breaker::new().name("redis")).metrics("api");
    let seen = recorder.snapshotter.snapshot().into_vec();
    assert!(!seen.is_empty());
    for (key, unit, help, value) in seen {
        let name = key.key().name();
        let metric = METRICS.iter().find(|metric| metric.name == name).expect(name);
        let labels: Vec<_> = key.key().labels().map(Label::key).collect();
        let kind = match value {
            DebugValue::Counter(_) => MetricKind::Counter,
            DebugValue::Gauge(_) => MetricKind::Gauge,
            DebugValue::Histogram(_) => MetricKind::Histogram,
        };
        assert_eq!((metric.labels, metric.kind), (&labels[..], kind), "{name}");
        assert_eq!((Some(metric.unit), Some(metric.help)), (unit, help.as_deref()), "{name}");
    }
    let begins = |metric: &&str| metric.starts_with("rate_limit_");
    assert!(METRICS.iter().map(|metric| metric.name).all(|name| begins(&name)));
}

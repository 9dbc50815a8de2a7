//! Every algorithm under the same traffic, as a picture: `cargo run --release --example compare`
//! writes `docs/compare.svg`, or the file that its argument names.
//!
//! The limit is 5 per second. Two requests per second come all the time. Twice, twenty more come
//! within a second, and once twelve per second come for three seconds. A request that does not fit
//! waits for a second at most. Each is answered 300 ms after it passed: until then a budget holds
//! it.

mod lanes;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lanes::{Chart, Lane};
use plotters::style::RGBColor;
use tower_sluice::algorithm::{
    Algorithm, Budget, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};
use tower_sluice::limiter::Reservation;
use tower_sluice::{Charge, Limiter, Memory, Outcome, Quota};

/// The traffic's length and the width of a bar, in ms.
const END: u64 = 12_000;
const BAR: u64 = 200;

/// The time that a request is under way, in ms.
const ANSWER: u64 = 300;

const VERDICTS: [(&str, RGBColor); 3] = [
    ("admitted at once", RGBColor(0, 114, 178)),
    ("delayed", RGBColor(230, 159, 0)),
    ("rejected", RGBColor(176, 58, 46)),
];

/// The number of requests of a bar that got each verdict.
type Bar = [i32; 3];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| String::from("docs/compare.svg"));
    let quota = Quota::per_second(5);
    let lanes = [
        ("token bucket", lane(TokenBucket::new(quota)).await?),
        ("budget", lane(Budget::new(quota)).await?),
        ("fixed window", lane(FixedWindow::new(quota)).await?),
        ("fixed window, anchored", lane(FixedWindow::new(quota).anchored()).await?),
        ("sliding log", lane(SlidingLog::new(quota)).await?),
        ("sliding window, 10 cells", lane(SlidingWindow::new(quota)).await?),
        ("sliding counter", lane(SlidingCounter::new(quota)).await?),
        ("smooth bursty", lane(SmoothBursty::new(quota)).await?),
        ("smooth warming up, 2 s", {
            lane(SmoothWarmingUp::new(quota, Duration::from_secs(2))).await?
        }),
    ];
    let chart = Chart {
        title: "Five a second, the same traffic for all",
        verdicts: &VERDICTS,
        end: END,
        bar: BAR,
        spans: &[],
        note: format!(
            "Each bar is a fifth of a second of arrivals, of {} requests in all; whoever does not \
             fit would wait a second at most.",
            traffic().len()
        ),
    };
    chart.draw(&path, &lanes.map(|(name, bars)| described(name, bars)))?;
    println!("wrote {path}");
    Ok(())
}

/// A lane, with its verdicts in numbers.
fn described(name: &'static str, bars: Vec<Bar>) -> Lane<3> {
    let [at_once, delayed, rejected] =
        [0, 1, 2].map(|verdict| bars.iter().map(|bar| bar[verdict]).sum::<i32>());
    Lane { name, note: format!("{at_once} at once, {delayed} delayed, {rejected} rejected"), bars }
}

/// Returns the instants at which requests come, in ms.
fn traffic() -> Vec<u64> {
    let steady = (0..END).step_by(500);
    let crowds =
        [2_000, 5_500].into_iter().flat_map(|at| (0..20).map(move |place| at + place * 40));
    let rush = (8_000..11_000).step_by(83);
    let mut all: Vec<_> = steady.chain(crowds).chain(rush).collect();
    all.sort_unstable();
    all
}

/// Decides the traffic by an algorithm, and counts the verdicts in bars.
async fn lane<A: Algorithm>(algorithm: A) -> Result<Vec<Bar>, tower_sluice::Error> {
    // The start of a second.
    const BEGIN: u64 = 1_767_225_600_000;
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let limiter = Memory::new("compare", algorithm)
        .clock(move || Duration::from_millis(BEGIN + clock.load(Relaxed)));
    let mut bars = vec![Bar::default(); (END / BAR) as usize];
    let mut under_way: BTreeMap<u64, Vec<Reservation>> = BTreeMap::new();
    for at in traffic() {
        while let Some(answered) = under_way.first_entry().filter(|first| *first.key() <= at) {
            now.store(*answered.key(), Relaxed);
            for reservation in answered.remove() {
                // A bucket or a window has counted it already.
                let _ = limiter.settle(reservation, 1);
            }
        }
        now.store(at, Relaxed);
        let charge = Charge::new("all").max_wait(Duration::from_secs(1));
        let mut decision = limiter.check(&charge).await?;
        let (verdict, wait) = match decision.outcome() {
            Outcome::Allow => (0, Duration::ZERO),
            Outcome::Wait(wait) => (1, wait),
            _ => (2, Duration::ZERO),
        };
        if let Some(reservation) = decision.take_reservation() {
            let answered = at + wait.as_millis() as u64 + ANSWER;
            under_way.entry(answered).or_default().push(reservation);
        }
        bars[(at / BAR) as usize][verdict] += 1;
    }
    Ok(bars)
}

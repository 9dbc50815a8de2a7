//! Every algorithm under the same traffic, as a picture: `cargo run --release --example compare`
//! writes `docs/compare.svg`, or the file that its argument names.
//!
//! The limit is 5 per second. Two requests per second come all the time. Twice, twenty more come
//! within a second, and once twelve per second come for three seconds. A request that does not fit
//! waits for a second at most. Each is answered 300 ms after it passed: until then a budget holds
//! it.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
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

const SIZE: (u32, u32) = (960, 700);
const LEFT: i32 = 244;
const RIGHT: i32 = 932;
const TOP: i32 = 62;
const LANE: i32 = 64;

/// Colours that people with colour blindness can tell apart. The picture brings its own background.
const GROUND: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(45, 45, 48);
const FAINT: RGBColor = RGBColor(214, 214, 208);
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
    draw(&path, &lanes)?;
    println!("wrote {path}");
    Ok(())
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

fn draw(path: &str, lanes: &[(&str, Vec<Bar>)]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&GROUND)?;
    let text = |size: u32, color: RGBColor| ("sans-serif", size).into_font().color(&color);
    let left = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Left, VPos::Center));
    let right = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Right, VPos::Center));
    let middle = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Center, VPos::Center));

    root.draw_text("Five a second, the same traffic for all", &left(text(17, INK)), (14, 20))?;
    let mut x = LEFT;
    for (verdict, color) in VERDICTS {
        root.draw(&Rectangle::new([(x, 38), (x + 12, 50)], color.filled()))?;
        root.draw_text(verdict, &left(text(13, INK)), (x + 18, 45))?;
        x += 40 + 7 * verdict.len() as i32;
    }

    let across = |ms: u64| LEFT + (ms as i32) * (RIGHT - LEFT) / END as i32;
    let bottom = TOP + LANE * lanes.len() as i32;
    for second in 0..=END / 1_000 {
        let x = across(second * 1_000);
        root.draw(&PathElement::new([(x, TOP), (x, bottom)], FAINT))?;
        root.draw_text(&format!("{second} s"), &middle(text(12, INK)), (x, bottom + 14))?;
    }
    let most = lanes.iter().flat_map(|(_, bars)| bars).map(|bar| bar.iter().sum::<i32>()).max();
    let unit = f64::from(LANE - 14) / f64::from(most.unwrap_or(1));
    for (place, (name, bars)) in lanes.iter().enumerate() {
        let floor = TOP + LANE * (place as i32 + 1);
        root.draw(&PathElement::new([(14, floor), (RIGHT, floor)], INK))?;
        root.draw_text(name, &right(text(14, INK)), (LEFT - 12, floor - 38))?;
        let totals: Vec<_> =
            (0..3).map(|verdict| bars.iter().map(|bar| bar[verdict]).sum::<i32>()).collect();
        let told = format!("{} at once, {} delayed, {} rejected", totals[0], totals[1], totals[2]);
        root.draw_text(&told, &right(text(12, INK)), (LEFT - 12, floor - 18))?;
        for (number, bar) in bars.iter().enumerate() {
            let (from, to) = (across(number as u64 * BAR), across((number as u64 + 1) * BAR) - 1);
            let mut below = 0;
            for (count, (_, color)) in bar.iter().zip(VERDICTS) {
                let height = |units: i32| floor - (f64::from(units) * unit).round() as i32;
                if *count > 0 {
                    let (low, high) = (height(below), height(below + count));
                    root.draw(&Rectangle::new([(from, high), (to, low)], color.filled()))?;
                }
                below += count;
            }
        }
    }
    let note = format!(
        "Each bar is a fifth of a second of arrivals, of {} requests in all; whoever does not fit would wait a second at most.",
        traffic().len()
    );
    root.draw_text(&note, &left(text(12, INK)), (14, bottom + 40))?;
    root.present()?;
    Ok(())
}

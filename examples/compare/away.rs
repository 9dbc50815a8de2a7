//! What callers see while Redis is away, drawn from a run: `cargo run --release --example away`
//! starts a redis-server, stops it and ends it, and writes `docs/away.svg` or the file that its
//! argument names. It takes ten seconds.
//!
//! Four limiters ask that server, each for 40 requests a second: 20 of them fit. They differ in what
//! stands around `Redis`.

mod lanes;

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lanes::{Chart, Lane};
use plotters::style::RGBColor;
use servers::Server;
use tokio::time::{Instant, sleep_until};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::{Boxed, Breaker, Origin};
use tower_sluice::{Charge, FailOpen, Limiter, LimiterExt, Memory, Quota, Redis};

/// The length of the run and the width of a bar, in ms.
const END: u64 = 10_000;
const BAR: u64 = 200;

/// The time between two requests of a lane, in ms.
const PACE: u64 = 25;

const SPANS: [(u64, u64, &str); 2] =
    [(2_000, 4_000, "Redis hangs"), (6_000, 8_000, "Redis is down")];

const VERDICTS: [(&str, RGBColor); 4] = [
    ("admitted by Redis", RGBColor(0, 114, 178)),
    ("admitted without Redis", RGBColor(86, 180, 233)),
    ("429", RGBColor(190, 190, 184)),
    ("503", RGBColor(176, 58, 46)),
];

/// The time that a request came, the place of its verdict, and the time until it had it.
type Answer = (u64, usize, Duration);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| String::from("docs/away.svg"));
    let mut server = Server::start();
    // Each has connections of its own, as processes would.
    let redis = |name| {
        let bucket = TokenBucket::new(Quota::per_second(20));
        Redis::new(name, bucket, server.pool())
    };
    let share = Memory::new("share", TokenBucket::new(Quota::per_second(5)));
    let limiters = [
        ("Redis alone", redis("alone").boxed()),
        (".breaker(..)", redis("breaker").breaker(Breaker::new()).boxed()),
        (".breaker(..).or_else(share)", {
            redis("share").breaker(Breaker::new()).or_else(share).boxed()
        }),
        (".breaker(..).or_else(FailOpen)", {
            redis("open").breaker(Breaker::new()).or_else(FailOpen).boxed()
        }),
    ];
    for (_, limiter) in &limiters {
        let _ = limiter.check(&Charge::new("first")).await?;
    }

    let begun = Instant::now();
    let running = limiters.map(|(name, limiter)| (name, tokio::spawn(answers(limiter, begun))));
    let until = async |ms| sleep_until(begun + Duration::from_millis(ms)).await;
    let [(stops, goes_on, _), (ends, returns, _)] = SPANS;
    until(stops).await;
    server.signal("STOP");
    until(goes_on).await;
    server.signal("CONT");
    until(ends).await;
    server.kill();
    until(returns).await;
    tokio::task::block_in_place(|| server.restart());

    let mut lanes = Vec::new();
    for (name, answers) in running {
        lanes.push(lane(name, &answers.await?));
    }
    let chart = Chart {
        title: "Redis is away twice: what callers see",
        verdicts: &VERDICTS,
        end: END,
        bar: BAR,
        spans: &SPANS,
        note: format!(
            "{} requests a second come to each limiter, and 20 fit; of the share 5. This Redis \
             saves nothing, so it counts anew at 8 s.",
            1_000 / PACE
        ),
    };
    chart.draw(&path, &lanes)?;
    println!("wrote {path}");
    Ok(())
}

/// Asks a limiter at its pace, and returns all answers.
async fn answers(limiter: Boxed, begun: Instant) -> Vec<Answer> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let mut asked = tokio::task::JoinSet::new();
    for at in (0..END).step_by(PACE as usize) {
        sleep_until(begun + Duration::from_millis(at)).await;
        let (limiter, all) = (limiter.clone(), Arc::clone(&all));
        asked.spawn(async move {
            let asked = Instant::now();
            let verdict = match limiter.check(&Charge::new("all")).await {
                Ok(decision) if !decision.is_admitted() => 2,
                Ok(decision) => usize::from(decision.origin() != Origin::Store),
                Err(_) => 3,
            };
            all.lock().expect("no panic").push((at, verdict, asked.elapsed()));
        });
    }
    asked.join_all().await;
    std::mem::take(&mut all.lock().expect("no panic"))
}

fn lane(name: &'static str, answers: &[Answer]) -> Lane<4> {
    let mut bars = vec![[0; 4]; (END / BAR) as usize];
    for (at, verdict, _) in answers {
        bars[(at / BAR) as usize][*verdict] += 1;
    }
    // The second half of each outage: a breaker needs a second to open.
    let [hangs, down] = SPANS.map(|(from, to, _)| {
        let is_within = |at: u64| at >= (from + to) / 2 && at < to;
        let within = answers.iter().filter(|(at, ..)| is_within(*at));
        let mut times: Vec<_> = within.map(|(_, _, time)| time.as_millis()).collect();
        times.sort_unstable();
        times[times.len() / 2]
    });
    Lane { name, note: format!("answers while away: {hangs} ms, {down} ms"), bars }
}

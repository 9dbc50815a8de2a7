//! Load on this service and on the peer, by the same client: `load.sh` builds both and runs this.
//!
//! 64 streams over four connections ask about 10,000 keys, as fast as answers come.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::Service;
use common::ask::{about, client};
use common::peer::Peer;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use support::Server;
use support::process::processor_time;

const STREAMS: usize = 64;
const CONNECTIONS: usize = 4;
const KEYS: u64 = 10_000;

fn request(descriptors: usize, number: u64) -> RateLimitRequest {
    let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
    let one = |index: usize| format!("k{index}=user-{}", (key + index as u64) % KEYS);
    let all: Vec<String> = (0..descriptors).map(one).collect();
    about("x", &all.iter().map(String::as_str).collect::<Vec<_>>(), 0)
}

struct Measured {
    a_second: f64,
    a_processor_second: f64,
    p50: Duration,
    p99: Duration,
    failed: u64,
}

async fn measure(address: SocketAddr, id: u32, descriptors: usize, time: Duration) -> Measured {
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| client(address)).collect();
    let (ends, failed, number) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
    let warm = Duration::from_secs(1);
    let begun = Instant::now();
    let streams: Vec<_> = (0..STREAMS)
        .map(|stream| {
            let mut client = clients[stream % CONNECTIONS].clone();
            let (ends, failed, number) = (ends.clone(), failed.clone(), number.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !ends.load(Relaxed) {
                    let request = request(descriptors, number.fetch_add(1, Relaxed));
                    let asked = Instant::now();
                    let answer = client.should_rate_limit(request).await;
                    if begun.elapsed() > warm {
                        failed.fetch_add(u64::from(answer.is_err()), Relaxed);
                        times.push(asked.elapsed());
                    }
                }
                times
            })
        })
        .collect();
    tokio::time::sleep(warm).await;
    let (before, begun) = (processor_time(id), Instant::now());
    tokio::time::sleep(time).await;
    let (used, took) = (processor_time(id) - before, begun.elapsed());
    ends.store(true, Relaxed);
    let mut times = Vec::new();
    for stream in streams {
        times.extend(stream.await.unwrap());
    }
    times.sort_unstable();
    let count = times.len() as f64;
    Measured {
        a_second: count / took.as_secs_f64(),
        a_processor_second: count / used.as_secs_f64(),
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        failed: failed.load(Relaxed),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: load.sh"]
async fn load() {
    let seconds =
        std::env::var("SECONDS_EACH").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let rule = |index| {
        format!("- key: k{index}\n  rate_limit: {{unit: hour, requests_per_unit: 1000000}}\n")
    };
    let rules: String = (0..10).map(rule).collect();
    let rules = format!("domain: x\ndescriptors:\n{rules}");
    let (mine, theirs) = (Server::with(&[]), Server::with(&[]));
    let url = mine.url();
    let memory = Service::start(&rules, &[]);
    let redis = Service::start(&rules, &[("REDIS_URL", &url), ("REDIS_TIMEOUT", "30")]);
    let peer = Peer::start(&rules, &theirs.url());
    let who = [
        ("peer, Redis", peer.grpc, peer.process.id()),
        ("this, Redis", redis.grpc, redis.process.id()),
        ("this, memory", memory.grpc, memory.process.id()),
    ];
    for descriptors in [1, 3, 10] {
        for (name, address, id) in who {
            let Measured { a_second, a_processor_second, p50, p99, failed } =
                measure(address, id, descriptors, Duration::from_secs(seconds)).await;
            println!(
                "load who=\"{name}\" descriptors={descriptors} a_second={a_second:.0} \
                 a_processor_second={a_processor_second:.0} p50_ms={:.1} p99_ms={:.1} \
                 failed={failed}",
                p50.as_secs_f64() * 1e3,
                p99.as_secs_f64() * 1e3,
            );
        }
    }
}

//! The cost of the gateway, and its behaviour under load: `cargo bench -p gateway` takes minutes.
//! Words after `--` choose the measures whose names contain one of them. `soak` takes an hour: it
//! runs only if it is named.

#[path = "../tests/common/mod.rs"]
mod common;
mod soak;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::client::Connection;
use common::upstream::Upstream;
use common::{Gateway, get};
use support::Server;
use support::process::{memory, processor_time};
use support::until;

/// The measures, in the order in which they run.
const MEASURES: [(&str, fn()); 6] = [
    ("what_limits_cost_over_a_plain_proxy", what_limits_cost_over_a_plain_proxy),
    ("fifty_swaps_in_ten_seconds_fail_no_request", fifty_swaps_in_ten_seconds_fail_no_request),
    ("series_do_not_grow_with_keys", series_do_not_grow_with_keys),
    (
        "of_ten_thousand_forged_headers_the_limit_is_admitted",
        of_ten_thousand_forged_headers_the_limit_is_admitted,
    ),
    (
        "ten_thousand_policies_are_loaded_beside_requests",
        ten_thousand_policies_are_loaded_beside_requests,
    ),
    ("ten_thousand_policies_that_nobody_looks_at", ten_thousand_policies_that_nobody_looks_at),
];

fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    for (name, measure) in MEASURES {
        if words.is_empty() || words.iter().any(|word| name.contains(word)) {
            println!("\n{name}");
            measure();
        }
    }
    if words.iter().any(|word| word == "soak") {
        soak::soak();
    }
}

fn table(limit: u64) -> String {
    format!(
        "[[policy]]\nname = \"api\"\nalgorithm = \"token_bucket\"\nlimit = {limit}\n\
         period = \"1s\"\nkey = \"header:x-api-key\"\n"
    )
}

/// The times of requests over some connections at once, sorted.
fn times(gateway: &Gateway, connections: usize, each: usize) -> Vec<Duration> {
    let one = |n: usize| {
        let key = format!("key-{n}");
        let mut connection = Connection::open(gateway.listen);
        let mut ask = || {
            let begun = Instant::now();
            let answer = connection.request("GET", "/", &[("x-api-key", &key)], b"");
            assert_eq!(answer.status, 200);
            begun.elapsed()
        };
        let _warm: Vec<_> = (0..each / 10).map(|_| ask()).collect();
        (0..each).map(|_| ask()).collect::<Vec<_>>()
    };
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..connections).map(|n| scope.spawn(move || one(n))).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    times.sort();
    times
}

fn show(what: &str, times: &[Duration]) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!("{what:44} p50 {:7.0} us, p99 {:7.0} us", at(0.5), at(0.99));
}

fn what_limits_cost_over_a_plain_proxy() {
    let upstream = Upstream::keeping_alive();
    let redis = Server::with(&[]);
    let (up, store) = (upstream.url(), redis.url());
    let limited = table(1_000_000);
    let plain = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &up)]);
    let memory = Gateway::start(&limited, &[("UPSTREAM", &up)]);
    let shared = Gateway::start(&limited, &[("UPSTREAM", &up), ("REDIS_URL", &store)]);
    for connections in [1, 16] {
        // In turn, so that all see the same machine.
        for round in 1..=3 {
            for (what, gateway) in [("plain", &plain), ("memory", &memory), ("redis", &shared)] {
                let what = format!("{what}, {connections} connections, round {round}");
                show(&what, &times(gateway, connections, 8_000 / connections));
            }
        }
    }
}

fn fifty_swaps_in_ten_seconds_fail_no_request() {
    let gateway = Gateway::with_policies(&table(1_000_000));
    let (over, asked, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        for task in 0..64 {
            let (gateway, over, asked, failed) = (&gateway, &over, &asked, &failed);
            scope.spawn(move || {
                let key = format!("key {task}");
                let mut connection = Connection::open(gateway.listen);
                while !over.load(Ordering::Relaxed) {
                    let answer = connection.request("GET", "/", &[("x-api-key", &key)], b"");
                    asked.fetch_add(1, Ordering::Relaxed);
                    failed.fetch_add(u64::from(answer.status != 200), Ordering::Relaxed);
                }
            });
        }
        let _over = common::SetOnDrop(&over);
        let begun = Instant::now();
        for swap in 1..=50_u32 {
            let limit = 1_000_000 + u64::from(swap);
            let changed = Instant::now();
            match swap % 2 {
                0 => gateway.rewrite(&table(limit)),
                _ => gateway.replace(&table(limit)),
            }
            let field = format!("q={limit}");
            // In force is what a request sees.
            until("the new limit", || {
                let answer = gateway.get_as("watcher", "/");
                answer.header("ratelimit-policy").is_some_and(|policy| policy.contains(&field))
            });
            longest = longest.max(changed.elapsed());
            std::thread::sleep((Duration::from_millis(200) * swap).saturating_sub(begun.elapsed()));
        }
        println!(
            "50 swaps in {:.1} s, each seen within {longest:?}",
            begun.elapsed().as_secs_f64()
        );
        over.store(true, Ordering::Relaxed);
    });
    println!("{asked:?} requests of 64 tasks, {failed:?} failed");
    assert_eq!(failed.into_inner(), 0);
}

fn series_do_not_grow_with_keys() {
    let gateway = Gateway::with_policies(&table(5));
    let series = || {
        let text = get(gateway.admin, "/metrics").text();
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count()
    };
    gateway.get_as("first", "/");
    let before = series();
    std::thread::scope(|scope| {
        for task in 0..8 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut connection = Connection::open(gateway.listen);
                for key in 0..12_500 {
                    let key = format!("key-{task}-{key}");
                    let answer = connection.request("GET", "/", &[("x-api-key", &key)], b"");
                    assert_eq!(answer.status, 200);
                }
            });
        }
    });
    println!("series in /metrics: {before} before, {} with 100,000 keys", series());
}

fn of_ten_thousand_forged_headers_the_limit_is_admitted() {
    let by_ip = "[[policy]]\nname = \"ip\"\nalgorithm = \"fixed_window\"\nlimit = 100\n\
                 period = \"1d\"\nkey = \"client_ip\"\n";
    let admitted = |gateway: &Gateway, header: &str, value: &dyn Fn(u32) -> String| {
        let mut connection = Connection::open(gateway.listen);
        let status = |n| connection.request("GET", "/", &[(header, &value(n))], b"").status;
        (0..10_000).map(status).filter(|status| *status == 200).count()
    };
    let address = |n: u32| format!("{}.{}.{}.{}", 11 + n % 89, n / 256 % 256, n % 256, n / 7 % 256);
    let direct = Gateway::with_policies(by_ip);
    let counts = [
        admitted(&direct, "x-forwarded-for", &address),
        admitted(&direct, "forwarded", &|n| format!("for={}", address(n))),
    ];
    println!("10,000 forged headers without a trusted proxy, twice: {counts:?} admitted");
    assert_eq!(counts, [100, 0]);

    let trusted = [("TRUSTED", "127.0.0.0/8")];
    let behind = Gateway::start(by_ip, &trusted);
    let forged = admitted(&behind, "x-forwarded-for", &|n| format!("{}, 203.0.113.9", address(n)));
    let group = admitted(&behind, "x-forwarded-for", &|n| format!("2001:db8:1:2:{n:x}::{n:x}"));
    println!("behind a trusted proxy, forged: {forged}; 10,000 addresses of one /64: {group}");
    assert_eq!((forged, group), (100, 100));
}

fn ten_thousand_policies_are_loaded_beside_requests() {
    let many = |limit: u64| -> String {
        let one = |number: usize| {
            let one = table(limit).replace("\"api\"", &format!("\"p{number}\""));
            format!("{one}match = {{ path = \"/p{number}/{{*rest}}\" }}\n")
        };
        (0..10_000).map(one).collect()
    };
    let gateway = Gateway::with_policies(&table(1_000_000));
    let mut connection = Connection::open(gateway.listen);
    for limit in 1..=5 {
        let begun = Instant::now();
        let (mut slowest, mut asked) = (Duration::ZERO, 0);
        gateway.replace(&many(limit));
        until("the table is in force", || {
            for _ in 0..100 {
                let sent = Instant::now();
                connection.request("GET", "/", &[("x-api-key", "alice")], b"");
                (slowest, asked) = (slowest.max(sent.elapsed()), asked + 1);
            }
            gateway.process.stderr().matches("is in force").count()
                >= usize::try_from(limit).unwrap()
        });
        println!(
            "10,000 policies in force after {:?}, of {asked} requests the slowest took {slowest:?}",
            begun.elapsed()
        );
    }
}

fn ten_thousand_policies_that_nobody_looks_at() {
    let row = |n| {
        format!(
            "[[policy]]\nname = \"policy-{n}\"\nalgorithm = \"token_bucket\"\nlimit = 5\n\
             period = \"1s\"\nkey = \"header:x-api-key\"\nmatch = {{ path = \"/{n}\" }}\n"
        )
    };
    let gateway = Gateway::with_policies(&(0..10_000).map(row).collect::<String>());
    let id = gateway.process.id();
    let (before, begun) = (processor_time(id), Instant::now());
    std::thread::sleep(Duration::from_secs(20));
    let share = (processor_time(id) - before).div_duration_f64(begun.elapsed());
    let mib = memory(id) >> 20;
    println!("10,000 policies, nobody looks: {:.2} % of a core, {mib} MiB", share * 100.0);
    for path in ["/metrics", "/metrics.json"] {
        for _ in 0..3 {
            let (before, begun) = (processor_time(id), Instant::now());
            let bytes = get(gateway.admin, path).body.len();
            let (wall, used) = (begun.elapsed(), processor_time(id) - before);
            println!("{path}: {bytes} bytes in {wall:?}, {used:?} of a core");
        }
    }
    println!("then {} MiB", memory(id) >> 20);
    assert!(share < 0.01 && mib < 100);
}

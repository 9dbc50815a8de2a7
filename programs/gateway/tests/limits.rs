//! The decisions of policies, and what a caller sees of them.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use common::client::Connection;
use common::upstream::Upstream;
use common::{Answer, Gateway, get};
use support::files::Files;

/// A row with 5 in an hour for each key, and further fields. The hour begins with the first
/// request, so that none of the clock ends in the middle of a test.
fn row(name: &str, fields: &str) -> String {
    let with = |field: &str, default: &str| {
        let has = fields.lines().any(|line| line.trim_start().starts_with(field));
        if has { String::new() } else { format!("{field} = {default}\n") }
    };
    format!(
        "[[policy]]\nname = \"{name}\"\n{}{}{}{}{fields}\n",
        with("algorithm", "\"fixed_window\"\nanchored = true"),
        with("limit", "5"),
        with("period", "\"1h\""),
        with("key", "\"header:x-api-key\""),
    )
}

fn retry_after(answer: &Answer) -> Option<u64> {
    answer.header("retry-after").map(|seconds| seconds.parse().expect("seconds"))
}

#[test]
fn a_burst_is_admitted_delayed_and_refused() {
    let api = row(
        "api",
        "algorithm = \"token_bucket\"\nperiod = \"10s\"\nburst = 5\nmax_wait = \"4500ms\"",
    );
    let gateway = Gateway::with_policies(&api);
    let (begun, barrier) = (Instant::now(), Barrier::new(10));
    let mut times: Vec<(u16, Duration)> = std::thread::scope(|scope| {
        let one = || {
            let mut connection = Connection::open(gateway.listen);
            barrier.wait();
            let asked = Instant::now();
            let answer = connection.request("GET", "/", &[("x-api-key", "alice")], b"");
            (answer.status, asked.elapsed())
        };
        let all: Vec<_> = (0..10).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    times.sort();
    let admitted = times.iter().filter(|(status, _)| *status == 200).count();
    // Five at once, and one for each two seconds of the wait and of what the calls took.
    let late = (begun.elapsed().as_secs() / 2) as usize;
    assert!((7..=7 + late).contains(&admitted), "{times:?}");
    assert!(times.iter().all(|(status, _)| matches!(status, 200 | 429)), "{times:?}");
    let delayed = gateway.counter("", &["limiter=\"api\"", "outcome=\"delayed\""]);
    assert!(delayed >= 2, "{delayed}");
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let gateway = Gateway::with_policies(&row("api", ""));
    for left in (0..5).rev() {
        let answer = gateway.get_as("alice", "/");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"api\";q=5;w=3600"));
        let limit = answer.header("ratelimit").expect("a field");
        assert!(limit.starts_with(&format!("\"api\";r={left};t=")), "{limit}");
    }
    let refused = gateway.get_as("alice", "/");
    assert_eq!(refused.status, 429);
    let wait = retry_after(&refused).expect("a time");
    assert_eq!(refused.header("ratelimit"), Some(&*format!("\"api\";r=0;t={wait}")));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"api\";q=5;w=3600"));
    assert_eq!(gateway.get_as("bob", "/").status, 200);
}

#[test]
fn each_style_of_fields_is_there() {
    for (style, present) in [
        ("draft-11", &["ratelimit", "ratelimit-policy"][..]),
        ("draft-07", &["ratelimit", "ratelimit-policy"]),
        (
            "draft-06",
            &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit-policy"],
        ),
        ("legacy", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("legacy-epoch", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("none", &[]),
    ] {
        let gateway = Gateway::start(&row("api", "limit = 1"), &[("HEADERS", style)]);
        for status in [200, 429] {
            let answer = gateway.get_as("alice", "/");
            assert_eq!(answer.status, status, "{style}");
            let mut fields: Vec<_> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
            fields.retain(|name| name.contains("ratelimit"));
            fields.sort_unstable();
            let mut expected = present.to_vec();
            expected.sort_unstable();
            assert_eq!(fields, expected, "{style} {status}");
            assert_eq!(retry_after(&answer).is_some(), status == 429, "{style}");
        }
    }
}

#[test]
fn the_upstream_keeps_its_own_fields() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nx-ratelimit-limit: 9\r\nratelimit-limit: 9\r\n\
         ratelimit: \"own\";r=1;t=1\r\nratelimit-policy: \"own\";q=9",
        "",
    );
    let url = upstream.url();
    let answer = |style| {
        let gateway = Gateway::start(&row("api", ""), &[("UPSTREAM", &url), ("HEADERS", style)]);
        gateway.get_as("alice", "/")
    };
    assert_eq!(answer("legacy").header("x-ratelimit-limit"), Some("9"));
    assert_eq!(answer("draft-06").header("ratelimit-limit"), Some("9"));
    let listed = answer("draft-11").lines("ratelimit-policy").join(", ");
    assert_eq!(listed, "\"own\";q=9, \"api\";q=5;w=3600");
    let listed = answer("draft-11").lines("ratelimit").join(", ");
    assert!(listed.starts_with("\"own\";r=1;t=1, \"api\";r=4;t="), "{listed}");
    assert_eq!(answer("draft-07").lines("ratelimit"), ["\"own\";r=1;t=1"]);
}

#[test]
fn what_no_policy_matches_passes_without_fields() {
    let matched = "match = { path = \"/api/{*rest}\", method = [\"GET\", \"POST\"] }";
    let gateway = Gateway::with_policies(&row("api", matched));
    for _ in 0..10 {
        let answer = gateway.get("/other");
        assert_eq!((answer.status, answer.has_fields()), (404, false));
    }
    assert!(!gateway.send("DELETE", "/api/x", &[], b"").has_fields());
    assert_eq!(gateway.get("/api/x").status, 400);
    assert!(gateway.get_as("alice", "/api/x").has_fields());
}

#[test]
fn other_spellings_of_a_path_are_limited_too() {
    let gateway = Gateway::with_policies(&row("api", "match = { path = \"/api/{*rest}\" }"));
    for path in ["/api/x", "/%61pi/x", "/api/%78", "/api/x/", "/ap%69/y"] {
        assert!(gateway.get_as("alice", path).has_fields(), "{path}");
    }
    assert_eq!(gateway.get_as("alice", "/%61pi/y").status, 429);
}

#[test]
fn a_path_that_is_not_found_was_decided() {
    let gateway = Gateway::with_policies(&row("api", "limit = 2"));
    let statuses: Vec<u16> = (0..3).map(|_| gateway.get_as("alice", "/other").status).collect();
    assert_eq!(statuses, [404, 404, 429]);
}

#[test]
fn a_request_without_its_key_is_a_400() {
    let gateway = Gateway::with_policies(&row("api", ""));
    assert_eq!(gateway.get("/").status, 400);
    assert_eq!(gateway.get_as("", "/").status, 400);
    assert_eq!(gateway.get_as("alice", "/").status, 200);
}

#[test]
fn the_length_of_a_body_is_its_cost() {
    let upload =
        row("upload", "limit = 4\nalgorithm = \"token_bucket\"\ncost = \"content_length_kb\"");
    let gateway = Gateway::with_policies(&upload);
    let left = |answer: Answer| -> u64 {
        let field = answer.header("ratelimit").expect("a field").to_owned();
        field.split(";r=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap()
    };
    let post = |key: &str, bytes: usize| {
        gateway.send("POST", "/echo", &[("x-api-key", key)], &vec![b'x'; bytes])
    };
    for (key, bytes, expected) in
        [("a", 0, 3), ("b", 1, 3), ("c", 1_024, 3), ("d", 1_025, 2), ("e", 4_096, 0)]
    {
        assert_eq!(left(post(key, bytes)), expected, "{bytes}");
    }
}

#[test]
fn what_can_never_fit_is_refused_before_its_body_is_read() {
    let upload =
        row("upload", "limit = 4\nalgorithm = \"token_bucket\"\ncost = \"content_length_kb\"");
    let gateway = Gateway::with_policies(&upload);
    let mut connection = Connection::open(gateway.listen);
    let headers = [("x-api-key", "alice"), ("expect", "100-continue")];
    connection.send_head("POST", "/echo", &headers, Some(4_097));
    let answer = connection.answer("POST");
    assert_eq!((answer.status, retry_after(&answer)), (429, None));
    // Nothing was taken, and a caller that sends at once has its answer too.
    for _ in 0..20 {
        let answer = gateway.send("POST", "/echo", &[("x-api-key", "alice")], &[0; 3_000_000]);
        assert_eq!((answer.status, retry_after(&answer)), (429, None));
    }
    assert_eq!(gateway.send("POST", "/echo", &[("x-api-key", "alice")], &[0; 4_096]).status, 200);
}

#[test]
fn several_policies_decide_all_or_nothing() {
    let table = [
        row("wide", "limit = 10\nkey = \"global\""),
        row("tight", "limit = 2\nperiod = \"1m\"\nmatch = { path = \"/tight\" }"),
    ]
    .concat();
    let gateway = Gateway::with_policies(&table);
    for left in [1, 0] {
        let answer = gateway.get_as("alice", "/tight");
        let policies = answer.header("ratelimit-policy").unwrap();
        assert_eq!(policies, "\"wide\";q=10;w=3600, \"tight\";q=2;w=60");
        let field = answer.header("ratelimit").unwrap();
        // The lowest share is reported.
        assert!(field.starts_with(&format!("\"tight\";r={left};")), "{field}");
    }
    for _ in 0..20 {
        let refused = gateway.get_as("alice", "/tight");
        assert_eq!(refused.status, 429);
        let field = refused.header("ratelimit").unwrap();
        assert!(field.starts_with("\"tight\";r=0;t=") && !field.contains(','), "{field}");
    }
    // Refusals took nothing from the wide one.
    let answer = gateway.get_as("bob", "/other");
    assert!(answer.header("ratelimit").unwrap().starts_with("\"wide\";r=7;"), "{answer:?}");
}

#[test]
fn a_shadow_decides_and_refuses_nobody() {
    let gateway = Gateway::with_policies(&row("api", "limit = 1\nshadow = true"));
    for _ in 0..5 {
        assert_eq!(gateway.get_as("alice", "/").status, 200);
    }
    let counted = gateway.counter("rate_limit_decisions_total", &["\"api\"", "outcome=\"denied\""]);
    assert_eq!(counted, 4);
}

#[test]
fn a_policy_that_is_not_enabled_does_nothing() {
    let gateway = Gateway::with_policies(&row("api", "limit = 1\nenabled = false"));
    for _ in 0..5 {
        let answer = gateway.get("/");
        assert_eq!((answer.status, answer.has_fields()), (200, false));
    }
}

#[test]
fn a_supplier_has_one_bucket_with_waits() {
    let table = "[[interface]]\nname = \"geo\"\nrate = 5\ncache = 0.5\nstatus = 1\n\
                 [[interface]]\nname = \"free\"\nrate = 1\nstatus = 0\n";
    let gateway = Gateway::with_policies(table);
    let (begun, barrier) = (Instant::now(), Barrier::new(10));
    let mut all: Vec<(u16, Duration)> = std::thread::scope(|scope| {
        let barrier = &barrier;
        let listen = gateway.listen;
        let one = |path: &'static str| {
            scope.spawn(move || {
                let mut connection = Connection::open(listen);
                barrier.wait();
                let asked = Instant::now();
                (connection.request("GET", path, &[], b"").status, asked.elapsed())
            })
        };
        let all: Vec<_> = (0..10).map(|n| one(["/geo", "/geo/", "/geo/a/b"][n % 3])).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    all.sort();
    let refused = all.iter().filter(|(status, _)| *status == 429).count();
    // One fewer for each 200 ms that the calls took beyond the longest wait.
    let late = (begun.elapsed().as_millis().saturating_sub(400) / 200) as usize;
    assert!((3_usize.saturating_sub(late)..=3).contains(&refused), "{all:?}");
    assert!(gateway.counter("", &["limiter=\"geo\"", "outcome=\"delayed\""]) <= 2 + late as u64);
    for _ in 0..10 {
        assert_eq!(gateway.get("/free/x").status, 404);
    }
}

#[test]
fn a_client_that_obeys_retry_after_succeeds_at_its_first_retry() {
    for algorithm in [
        "token_bucket",
        "budget",
        "fixed_window",
        "sliding_log",
        "sliding_window",
        "sliding_counter",
        "smooth_bursty",
        "smooth_warming_up",
        "redisson",
    ] {
        let fields = format!("algorithm = \"{algorithm}\"\nlimit = 2\nperiod = \"1s\"");
        let gateway = Gateway::with_policies(&row("api", &fields));
        let mut answer = gateway.get_as("alice", "/");
        for _ in 0..10 {
            if answer.status == 429 {
                break;
            }
            answer = gateway.get_as("alice", "/");
        }
        assert_eq!(answer.status, 429, "{algorithm}");
        let wait = retry_after(&answer).expect("a time");
        std::thread::sleep(Duration::from_secs(wait));
        assert_eq!(gateway.get_as("alice", "/").status, 200, "{algorithm}");
    }
}

#[test]
fn the_default_table_shows_every_algorithm_and_needs_no_redis() {
    let gateway = Gateway::run(Files::new(), &[("ADMIN_TOKEN", common::TOKEN)]).unwrap();
    let listed = gateway.admin("GET", "/policies", "").text();
    for algorithm in [
        "token_bucket",
        "budget",
        "fixed_window",
        "sliding_log",
        "sliding_window",
        "sliding_counter",
        "smooth_bursty",
        "smooth_warming_up",
        "redisson",
    ] {
        assert!(listed.contains(&format!("\"{algorithm}\"")), "{algorithm}: {listed}");
    }
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(get(gateway.admin, "/health").status, 200);
    let upload = gateway.send("POST", "/echo", &[], &vec![0; 70 * 1_024]);
    assert_eq!((upload.status, retry_after(&upload)), (429, None));
}

#[test]
fn garbage_harms_nobody() {
    let gateway = Gateway::with_policies(&row("api", ""));
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: \xff\0\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(gateway.listen).unwrap();
        stream.write_all(bytes).unwrap();
    }
    assert_eq!(gateway.get_as("alice", "/").status, 200);
}

#[test]
fn a_policy_of_get_takes_no_head_unless_it_says_so() {
    for (methods, left) in [("\"GET\"", 4), ("[\"GET\", \"HEAD\"]", 2)] {
        let fields = format!("match = {{ path = \"/\", method = {methods} }}");
        let gateway = Gateway::with_policies(&row("api", &fields));
        for method in ["GET", "HEAD", "HEAD"] {
            assert_eq!(gateway.send(method, "/", &[("x-api-key", "alice")], b"").status, 200);
        }
        let stands = gateway.admin("GET", "/keys/api/alice", "").json();
        assert_eq!(stands["remaining"], left, "{methods}");
    }
}

#[test]
fn a_path_that_servers_read_in_several_ways_is_refused_unless_the_table_allows_it() {
    let login = row("login", "key = \"global\"\nmatch = \"/login\"");
    let gateway = Gateway::with_policies(&login);
    for path in ["//login", "//x/login", "/login;a=b", "/x/..;/login", "/login/.", "//other"] {
        assert_eq!(gateway.get(path).status, 400, "{path}");
    }
    // None of them was charged, and other spellings are one path for everybody.
    for path in ["/login", "/login/", "/%6cogin", "/login?//x", "/login", "/other"] {
        assert_eq!(gateway.get(path).status, 404, "{path}");
    }
    assert_eq!(gateway.get("/login").status, 429);
    let gateway = Gateway::with_policies(&format!("allow_in_paths = [\"//\"]\n{login}"));
    for (path, status) in [("//other", 404), ("//login", 404), ("/login;a=b", 400)] {
        assert_eq!(gateway.get(path).status, status, "{path}");
    }
}

/// An upstream that does not notice that a caller is gone holds no unit for ever.
#[test]
fn a_tunnel_of_which_one_side_has_ended_ends_in_silence() {
    let upstream = Upstream::start(|_, mut stream| {
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
        // Neither reads nor closes.
        std::thread::sleep(Duration::from_secs(3_600));
    });
    let table = "[[policy]]\nname = \"at-once\"\nalgorithm = \"concurrency\"\nlimit = 1\n\
                 key = \"global\"\nmax_hold = \"1h\"\n";
    let gateway = Gateway::start(table, &[("UPSTREAM", &upstream.url()), ("BODY_TIMEOUT", "0.5")]);
    let open = || {
        let mut tunnel = Connection::open(gateway.listen);
        tunnel.send_head("GET", "/", &[("connection", "upgrade"), ("upgrade", "x")], None);
        (tunnel.head().0, tunnel)
    };
    let (status, tunnel) = open();
    assert_eq!(status, 101);
    assert_eq!(open().0, 429);
    drop(tunnel);
    support::until("its unit is free", || open().0 == 101);
}

/// A request counts for as long as its answer runs, and a tunnel until it is closed.
#[test]
fn answers_and_tunnels_that_run_count_against_a_limit_at_once() {
    let upstream = Upstream::start(|head, mut stream| {
        if head.iter().any(|line| line.eq_ignore_ascii_case("upgrade: x")) {
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
            stream.get_mut().write_all(answer).unwrap();
            // Until the caller closes.
            let _ = stream.read(&mut [0]);
            return;
        }
        let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        stream.get_mut().write_all(answer).unwrap();
        // The last chunk is sent when the caller says so, in the body of the request.
        if stream.read_exact(&mut [0]).is_ok() {
            stream.get_mut().write_all(b"0\r\n\r\n").unwrap();
        }
    });
    let table = "[[policy]]\nname = \"at-once\"\nalgorithm = \"concurrency\"\nlimit = 1\n\
                 key = \"header:x-api-key\"\nmax_hold = \"1h\"\n";
    let url = upstream.url();
    let gateway = Gateway::start(table, &[("UPSTREAM", &url)]);
    let asks = |key: &str| gateway.send("POST", "/", &[("x-api-key", key)], b"!");
    let is_free = |key: &str| support::until("its unit is free", || asks(key).status == 200);

    let key = ("x-api-key", "stream");
    let mut stream = Connection::open(gateway.listen);
    stream.send_head("POST", "/", &[key], Some(1));
    assert_eq!(stream.head().0, 200);
    assert_eq!(stream.chunk().as_deref(), Some(&b"hello"[..]));
    let refused = asks("stream");
    assert_eq!(refused.status, 429);
    assert!((1..=3).contains(&retry_after(&refused).expect("a guess")), "{:?}", refused.headers);
    assert_eq!(asks("another").status, 200);
    stream.send(b"!");
    assert_eq!(stream.chunk(), None);
    is_free("stream");

    let key = ("x-api-key", "tunnel");
    let mut tunnel = Connection::open(gateway.listen);
    tunnel.send_head("GET", "/", &[key, ("connection", "upgrade"), ("upgrade", "x")], None);
    assert_eq!(tunnel.head().0, 101);
    assert_eq!(asks("tunnel").status, 429);
    drop(tunnel);
    is_free("tunnel");

    // A caller that hangs up in the middle of its answer.
    let key = ("x-api-key", "left");
    let mut stream = Connection::open(gateway.listen);
    stream.send_head("POST", "/", &[key], Some(1));
    assert_eq!(stream.head().0, 200);
    assert_eq!(asks("left").status, 429);
    drop(stream);
    is_free("left");
}

/// A caller that does not stop is banned, by a row that an operator sees and can end the ban of.
#[test]
fn a_ban_is_shown_and_ended() {
    let rows = row("api", "ban_after = { refusals = 3, window = \"1h\", time = \"50h\" }")
        + "[[policy]]\nname = \"health\"\nexempt = true\nmatch = \"/health\"\n";
    let gateway = Gateway::with_policies(&rows);
    let hours = || {
        let answer = gateway.get_as("mallory", "/");
        retry_after(&answer).map_or(0, |seconds| seconds.div_ceil(3_600))
    };
    let seen: Vec<_> = (0..9).map(|_| hours()).collect();
    assert_eq!(seen, [0, 0, 0, 0, 0, 1, 1, 50, 50]);
    assert_eq!(gateway.get_as("alice", "/").status, 200);
    assert_eq!(gateway.get_as("mallory", "/health").status, 404);
    let shown = gateway.admin("GET", "/policies", "").json();
    assert_eq!(shown["policies"][0]["ban_after"]["time"], "50h", "{shown}");
    assert_eq!(shown["exempt"][0]["name"], "health", "{shown}");
    assert_eq!(shown["exempt"][0]["match"]["path"][0], "/health", "{shown}");
    assert!(gateway.admin("POST", "/keys/api/mallory/unblock", "").status < 300);
    assert_eq!(hours(), 1);
    assert!(gateway.process.stderr().contains("a key of api is unblocked"));
}

/// A limit of 0 is that of a suspended plan: it refuses everything, and is no error.
#[test]
fn a_limit_of_0_answers_429_in_memory_and_over_redis() {
    let server = support::Server::start();
    let redis = server.url();
    let suspended = row("suspended", "limit = 0\nmatch = \"/suspended\"");
    let plan = row("plan", "match = \"/plan\"\nplan = \"header:x-plan\"\nquotas = { none = 0 }");
    for variables in [vec![], vec![("REDIS_URL", redis.as_str())]] {
        let gateway = Gateway::start(&format!("{suspended}{plan}"), &variables);
        let ask = |path: &str, plan: &str| {
            gateway.send("GET", path, &[("x-api-key", "alice"), ("x-plan", plan)], b"")
        };
        support::until("the store decides", || ask("/suspended", "").status != 503);
        for (path, plan) in [("/suspended", ""), ("/plan", "none")] {
            let refused = ask(path, plan);
            assert_eq!((refused.status, retry_after(&refused)), (429, None), "{path}");
        }
        assert_eq!(ask("/plan", "gold").status, 404);
        assert_eq!(gateway.counter("rate_limit_errors_total", &["limiter=\"suspended\""]), 0);
        assert!(gateway.counter("rate_limit_decisions_total", &["suspended", "denied"]) > 0);
    }
}

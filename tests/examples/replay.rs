//! The replay, as an operator runs it: traffic on standard input, a verdict for each line on
//! standard output.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};

use support::Server;
use support::files::Files;
use support::tls::{Authority, TlsServer};

const T0: u64 = 1_767_225_600_000_000;

static BUILT: LazyLock<PathBuf> = LazyLock::new(|| support::example::built("replay"));

/// Replays `traffic` under `options`, words apart by spaces.
fn replay(options: &str, traffic: &str) -> Output {
    replay_with(&[], options, traffic)
}

/// The same, with further variables.
fn replay_with(variables: &[(&str, &str)], options: &str, traffic: &str) -> Output {
    let mut command = Command::new(&*BUILT);
    command.env_remove("REDIS_CA").envs(variables.iter().copied()).args(options.split(' '));
    support::example::fed(&mut command, traffic)
}

fn told(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn it_explains_itself() {
    support::installed::assert_explained(&*BUILT, &["--algorithm", "Input:", "REDIS_CA"]);
}

#[test]
fn every_verdict_is_told_with_its_figures() {
    let traffic = lines(&[
        json!({"t": T0, "key": "a"}),
        json!({"t": T0 + 1, "key": "a", "cost": 5, "max_wait": 600_000}),
        json!({"t": T0 + 1, "key": "a", "cost": 50}),
        json!({"t": T0 + 2, "key": "a", "op": "peek"}),
        json!({"t": T0 + 2, "key": "a"}),
        json!({"t": T0 + 3, "op": "refund", "of": 2}),
        json!({"t": T0 + 3, "op": "refund", "of": 2}),
        json!({"t": T0 + 4, "key": "b", "limit": 0}),
        json!({"t": T0 + 4, "key": "b", "limit": 3, "cost": 3}),
        json!({"t": T0 + 4, "key": "b", "limit": 3, "cost": 4}),
        json!({"t": T0 + 4, "key": "c", "period": 10_000_000, "burst": 1}),
        json!({"t": T0 + 4, "key": "c", "period": 10_000_000, "burst": 1}),
        json!({"t": T0 + 4, "key": ""}),
        json!({"t": T0 + 4, "key": "d", "op": "penalize", "cost": 7}),
        json!({"t": T0 + 4, "key": "d", "op": "grant", "cost": 4}),
        json!({"t": T0 + 4, "key": "d", "op": "reset"}),
        json!({"t": T0 + 4, "key": "d", "keep_free": 4}),
        json!({"t": T0 + 4, "key": "d", "keep_free": 4}),
    ]);
    let output = replay("--algorithm token_bucket --limit 5 --period 1s", &traffic);
    assert!(output.status.success(), "{}", said(&output));
    let error = |line: &Value| line["error"].as_str().expect("a reason").to_owned();
    let mut told = told(&output);
    assert!(error(&told[12]).contains("key"), "{}", told[12]);
    told[12].as_object_mut().expect("an object").remove("error");
    assert_eq!(
        told,
        [
            json!({"line": 1, "verdict": "allow", "wait_us": 0, "remaining": 4, "reset_after_us": 200_000}),
            json!({"line": 2, "verdict": "wait", "wait_us": 199_999, "remaining": 0, "reset_after_us": 1_199_999}),
            json!({"line": 3, "verdict": "never", "remaining": 0, "reset_after_us": 1_199_999}),
            json!({"line": 4, "verdict": "deny", "retry_after_us": 199_998, "remaining": 0, "reset_after_us": 1_199_998}),
            json!({"line": 5, "verdict": "deny", "retry_after_us": 399_998, "remaining": 0, "reset_after_us": 1_199_998}),
            json!({"line": 6, "verdict": "done", "refunded": 5, "remaining": 4, "reset_after_us": 199_997}),
            json!({"line": 7, "verdict": "done", "refunded": 0, "remaining": 4, "reset_after_us": 199_997}),
            json!({"line": 8, "verdict": "never", "remaining": 0, "reset_after_us": 0}),
            json!({"line": 9, "verdict": "allow", "wait_us": 0, "remaining": 0, "reset_after_us": 1_000_000}),
            json!({"line": 10, "verdict": "never", "remaining": 0, "reset_after_us": 1_000_000}),
            json!({"line": 11, "verdict": "allow", "wait_us": 0, "remaining": 0, "reset_after_us": 2_000_000}),
            json!({"line": 12, "verdict": "deny", "retry_after_us": 2_000_000, "remaining": 0, "reset_after_us": 2_000_000}),
            json!({"line": 13, "verdict": "error", "remaining": null, "reset_after_us": null}),
            json!({"line": 14, "verdict": "done", "remaining": 0, "reset_after_us": 1_400_000}),
            json!({"line": 15, "verdict": "done", "remaining": 2, "reset_after_us": 600_000}),
            json!({"line": 16, "verdict": "done", "remaining": 5, "reset_after_us": 0}),
            json!({"line": 17, "verdict": "allow", "wait_us": 0, "remaining": 4, "reset_after_us": 200_000}),
            json!({"line": 18, "verdict": "deny", "retry_after_us": 200_000, "remaining": 4, "reset_after_us": 200_000}),
        ]
    );
}

/// A block refuses, a pause lets wait, and a ban is a block that refusals make.
#[test]
fn blocks_pauses_and_bans_last_as_long_as_they_say() {
    let (second, minute) = (1_000_000, 60_000_000_u64);
    let ask = |at: u64, key: &str| json!({"t": T0 + at, "key": key, "max_wait": 2 * second});
    let op =
        |at: u64, op: &str, time: u64| json!({"t": T0 + at, "key": "a", "op": op, "time": time});
    let traffic = lines(&[
        op(0, "pause", second),
        ask(0, "a"),
        op(0, "block", minute),
        ask(0, "a"),
        json!({"t": T0, "key": "a", "op": "unblock"}),
        ask(0, "a"),
        // Five go, and three refusals ban for an hour.
        json!({"t": T0, "key": "b", "cost": 5}),
        json!({"t": T0, "key": "b"}),
        json!({"t": T0, "key": "b"}),
        json!({"t": T0, "key": "b"}),
        json!({"t": T0 + 59 * minute, "key": "b"}),
        json!({"t": T0 + 60 * minute, "key": "b"}),
    ]);
    let server = Server::start();
    let options = "--algorithm token_bucket --limit 5 --period 1s \
                   --ban-after 3 --ban-window 1m --ban-time 1h";
    for options in [options.to_owned(), format!("{options} --redis {}", server.url())] {
        let output = replay(&options, &traffic);
        assert!(output.status.success(), "{}", said(&output));
        let told = told(&output);
        let figures: Vec<_> = told
            .iter()
            .map(|line| {
                let figure = |name: &str| line[name].as_u64();
                (line["verdict"].as_str().unwrap(), figure("wait_us").or(figure("retry_after_us")))
            })
            .collect();
        assert_eq!(
            figures,
            [
                ("done", None),
                ("wait", Some(second)),
                ("done", None),
                ("deny", Some(minute)),
                ("done", None),
                // The one that waits keeps its slot.
                ("wait", Some(2 * second / 5)),
                ("allow", Some(0)),
                ("deny", Some(second / 5)),
                ("deny", Some(second / 5)),
                ("deny", Some(60 * minute)),
                ("deny", Some(minute)),
                ("allow", Some(0)),
            ]
        );
    }
    let untimed = lines(&[json!({"t": T0, "key": "a", "op": "pause"})]);
    assert!(said(&replay(options, &untimed)).contains("time"));
    let timed = lines(&[json!({"t": T0, "key": "a", "time": 5})]);
    assert!(said(&replay(options, &timed)).contains("time"));
}

/// Eight estimates of 1,000 use 100 each. One more is settled twice, and one is never settled.
#[test]
fn a_budget_holds_what_a_line_settles() {
    let hold = |at: u64| json!({"t": at, "key": "a", "cost": 1_000});
    let settle =
        |at: u64, of: usize, used: u64| json!({"t": at, "op": "settle", "of": of, "used": used});
    let mut traffic = vec![hold(T0); 8];
    traffic.extend((1..=8).map(|of| settle(T0, of, 100)));
    traffic.push(settle(T0, 8, 0));
    traffic.push(hold(T0));
    traffic.push(settle(T0 + 180_000_000, 18, 0));
    let server = Server::start();
    let options = "--algorithm budget --max-hold 60s --limit 10000 --period 1d";
    for options in [options.to_owned(), format!("{options} --redis {}", server.url())] {
        let output = replay(&options, &lines(&traffic));
        assert!(output.status.success(), "{}", said(&output));
        let told = told(&output);
        let day = 86_400_000_000_u64;
        let full = |units: u64| day / 10_000 * units;
        assert_eq!(
            told[8],
            json!({"line": 9, "given_back": 900, "remaining": 2_900, "reset_after_us": full(7_100)})
        );
        assert_eq!(
            told[15],
            json!({"line": 16, "given_back": 900, "remaining": 9_200, "reset_after_us": full(800)})
        );
        assert_eq!(
            told[16],
            json!({"line": 17, "given_back": 0, "remaining": 9_200, "reset_after_us": full(800)})
        );
        assert_eq!(told[17]["remaining"], 8_200);
        // Its time is over: it counts as spent.
        assert_eq!(told[18]["given_back"], 0);
        assert_eq!(told[18]["remaining"], 8_220);
    }
}

/// Three at the same time. One is renewed, one is released, and one is never released.
#[test]
fn concurrency_holds_what_a_line_releases_or_renews() {
    const SECOND: u64 = 1_000_000;
    let settle = |at: u64, of: usize, used: u64| json!({"t": T0 + at * SECOND, "op": "settle", "of": of, "used": used});
    let renew = |at: u64, of: usize| json!({"t": T0 + at * SECOND, "op": "renew", "of": of});
    let traffic = [
        json!({"t": T0, "key": "a"}),
        json!({"t": T0, "key": "a"}),
        json!({"t": T0, "key": "a"}),
        json!({"t": T0, "key": "a"}),
        json!({"t": T0, "key": "a", "cost": 4}),
        settle(1, 2, 0),
        settle(1, 2, 0),
        renew(4, 1),
        renew(4, 2),
        json!({"t": T0 + 4 * SECOND, "key": "a", "op": "peek"}),
        renew(5, 3),
        json!({"t": T0 + 5 * SECOND, "key": "a", "limit": 2}),
        settle(9, 1, 1),
        json!({"t": T0 + 9 * SECOND, "key": "a", "period": 1_000}),
    ];
    let server = Server::start();
    let options = "--algorithm concurrency --max-hold 4s --limit 3";
    for options in [options.to_owned(), format!("{options} --redis {}", server.url())] {
        let output = replay(&options, &lines(&traffic));
        assert!(output.status.success(), "{}", said(&output));
        let told = told(&output);
        for (place, remaining) in [(0, 2), (1, 1), (2, 0)] {
            let reset = 5 * SECOND;
            assert_eq!(
                told[place],
                json!({"line": place + 1, "verdict": "allow", "wait_us": 0,
                       "remaining": remaining, "reset_after_us": reset})
            );
        }
        assert_eq!(told[3]["verdict"], "deny");
        let retry_after = told[3]["retry_after_us"].as_u64().expect("a guess");
        assert!((SECOND..=3 * SECOND).contains(&retry_after), "{retry_after}");
        assert_eq!(told[4]["verdict"], "never");
        let after = |at: u64, until: u64| (until - at) * SECOND;
        assert_eq!(
            told[5..13],
            [
                json!({"line": 6, "given_back": 1, "remaining": 1, "reset_after_us": after(1, 5)}),
                json!({"line": 7, "given_back": 0, "remaining": 1, "reset_after_us": after(1, 5)}),
                json!({"line": 8, "renewed": true, "remaining": 1, "reset_after_us": after(4, 9)}),
                json!({"line": 9, "renewed": false, "remaining": 1, "reset_after_us": after(4, 9)}),
                json!({"line": 10, "verdict": "allow", "wait_us": 0, "remaining": 1,
                       "reset_after_us": after(4, 9)}),
                json!({"line": 11, "renewed": false, "remaining": 2, "reset_after_us": after(5, 9)}),
                json!({"line": 12, "verdict": "allow", "wait_us": 0, "remaining": 0,
                       "reset_after_us": after(5, 10)}),
                json!({"line": 13, "given_back": 0, "remaining": 2, "reset_after_us": after(9, 10)}),
            ]
        );
        assert_eq!(told[13]["verdict"], "error");
    }
}

#[test]
fn the_summary_counts_what_was_told() {
    let same = |key: &str| json!({"t": T0, "key": key});
    let traffic = lines(&[vec![same("much"); 10], vec![same("once"); 1]].concat());
    let output =
        replay("--algorithm token_bucket --limit 5 --period 1s --max-wait 500ms", &traffic);
    let said = said(&output);
    for line in [
        "charges                     11           to 2 keys",
        "admitted at once             6   54.5 %",
        "delayed                      2   18.2 %  p50 200ms, p99 400ms, longest 400ms",
        "refused                      3   27.3 %",
        "  much                                              5            2            3",
        "  once                                              1            0            0",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

#[test]
fn what_cannot_be_read_ends_the_replay_and_names_its_line() {
    let fine = json!({"t": T0, "key": "a"}).to_string();
    let odd = [
        ("", "line 2"),
        ("x", "line 2"),
        ("{\"t\":1.5,\"key\":\"a\"}", "line 2"),
        ("{\"t\":-1,\"key\":\"a\"}", "line 2"),
        ("{\"key\":\"a\"}", "`t`"),
        (&format!("{{\"t\":{T0}}}"), "no key"),
        (&format!("{{\"t\":{T0},\"key\":\"a\",\"cost\":-1}}"), "line 2"),
        (&format!("{{\"t\":{T0},\"key\":\"a\",\"op\":\"take\"}}"), "line 2"),
        (&format!("{{\"t\":{T0},\"op\":\"refund\"}}"), "\"of\""),
        (&format!("{{\"t\":{T0},\"op\":\"renew\"}}"), "\"of\""),
        (&format!("{{\"t\":{T0},\"key\":\"a\",\"of\":1}}"), "\"of\""),
        (&format!("{{\"t\":{T0},\"op\":\"renew\",\"of\":1,\"used\":0}}"), "\"used\""),
        (&format!("{{\"t\":{T0},\"op\":\"refund\",\"of\":2}}"), "\"of\""),
        (&format!("{{\"t\":{T0},\"op\":\"refund\",\"of\":0}}"), "\"of\""),
        (&format!("{{\"t\":{},\"key\":\"a\"}}", T0 - 1), "before"),
    ];
    for (text, reason) in odd {
        let traffic = format!("{fine}\n{text}\n{fine}\n");
        let output = replay("--algorithm fixed_window --limit 5 --period 1s", &traffic);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains("line 2") && said.contains(reason), "{text}: {said}");
        assert_eq!(said.lines().count(), 1, "{text}: {said}");
        assert_eq!(told(&output).len(), 1, "{text}");
    }
    let back = format!("{fine}\n{}\n", json!({"t": T0 - 1, "key": "a"}));
    let options = "--algorithm fixed_window --limit 5 --period 1s --allow-clock-steps";
    assert_eq!(told(&replay(options, &back)).len(), 2);
}

#[test]
fn options_that_cannot_be_are_refused() {
    for options in [
        "--algorithm leaky --limit 5 --period 1s",
        "--algorithm token_bucket --limit 5 --period 0s",
        "--algorithm token_bucket --limit 5 --period 1 second",
        "--algorithm token_bucket --limit 5 --period 1s --cells 5",
        "--algorithm sliding_window --limit 5 --period 1s --cells 61",
        "--algorithm sliding_window --limit 5 --period 1s --burst 6",
        "--algorithm smooth_warming_up --limit 5 --period 1s",
        "--algorithm smooth_warming_up --limit 5 --period 1s --warm-up 1s --cold-factor 0.5",
        "--algorithm smooth_bursty --limit 5 --period 1s --horizon 366d",
        "--algorithm smooth_bursty --limit 5 --period 1s --max-wait 1s --cache-ratio 1",
        "--algorithm token_bucket --limit 5 --period 1s --redis nowhere",
        "--algorithm redisson --limit 5 --period 1500us",
        "--algorithm redisson --limit 5 --period 1s --burst 6",
        "--algorithm token_bucket --limit 5",
        "--algorithm token_bucket --limit 5 --period 1s --max-hold 5s",
        "--algorithm concurrency --limit 5 --period 1s",
        "--algorithm concurrency --limit 5 --burst 5",
        "--algorithm redisson --limit 0 --period 1s",
    ] {
        let output = replay(options, "");
        assert_eq!(output.status.code(), Some(2), "{options}: {}", said(&output));
        assert!(output.stdout.is_empty());
    }
    let gone = format!("--redis redis://127.0.0.1:{}", support::NOWHERE);
    let output = replay(&format!("--algorithm token_bucket --limit 5 --period 1s {gone}"), "");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    // The whole chain, down to what the system says, and each cause once.
    assert_eq!(said(&output).matches("Connection refused").count(), 1, "{}", said(&output));
}

#[test]
fn a_quota_is_judged_by_the_algorithm() {
    let traffic = lines(&[json!({"t": T0, "key": "a"}), json!({"t": T0, "key": "a"})]);
    for (options, second) in [
        ("--algorithm fixed_window --limit 99999 --period 30d", "allow"),
        ("--algorithm token_bucket --limit 999983 --period 1d --burst 1", "deny"),
        ("--algorithm token_bucket --limit 0 --period 1s --cache-ratio 1", "never"),
        ("--algorithm concurrency --limit 0", "never"),
        ("--algorithm fixed_window --limit 0 --calendar month", "never"),
    ] {
        let output = replay(options, &traffic);
        assert!(output.status.success(), "{options}: {}", said(&output));
        let told = told(&output);
        let first = if second == "never" { second } else { "allow" };
        assert_eq!((&told[0]["verdict"], &told[1]["verdict"]), (&json!(first), &json!(second)));
    }
    let output = replay("--algorithm token_bucket --limit 1125899906842623 --period 1d", &traffic);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("too large for the time of a unit"), "{}", said(&output));
}

/// A typing error in a line, or a month in place of a minute, must not look like a decision.
#[test]
fn unknown_fields_and_months_are_errors() {
    let traffic = lines(&[json!({"t": T0, "key": "a", "costt": 5})]);
    let output = replay("--algorithm token_bucket --limit 5 --period 1s", &traffic);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", said(&output));
    assert!(said(&output).contains("line 1: unknown field `costt`"), "{}", said(&output));
    for period in ["1M", "1m1M"] {
        let options = format!("--algorithm token_bucket --limit 5 --period {period}");
        let output = replay(&options, "");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("write 1min or 30days"), "{}", said(&output));
    }
}

/// The sequences of a request that waits for its own debt, with the cache's ratio.
#[test]
fn own_debt_waits_as_long_as_the_cache_holds() {
    let waits = |output: &Output| -> Vec<_> {
        let ms = |line: &Value| line["wait_us"].as_u64().map(|wait| wait / 1_000);
        told(output).iter().map(ms).collect()
    };
    let own = "--algorithm smooth_bursty --limit 5 --period 1s --own-debt --cache-ratio";
    let ten = lines(&vec![json!({"t": T0, "key": "a"}); 10]);
    let output = replay(&format!("{own} 0.6"), &ten);
    let first = [0, 0, 0, 0, 0, 200, 400, 600].map(Some);
    assert_eq!(waits(&output), [&first[..], &[None, None]].concat());

    let costs = [(0, 3), (0, 4), (0, 1), (100, 1), (400, 1), (2_000, 6)];
    let costs = costs.map(|(ms, cost)| json!({"t": T0 + ms * 1_000, "key": "a", "cost": cost}));
    // The ratio is 0.5 if none is said.
    let output = replay(own, &lines(&costs));
    assert_eq!(waits(&output), [Some(0), Some(400), None, Some(500), Some(400), Some(200)]);
}

// Case 155.
#[test]
fn with_tls_the_authority_is_a_file() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = TlsServer::start(&authority.identity(&["localhost"]));
    let own = files.write("own.pem", &authority.pem());
    let options = "--algorithm token_bucket --limit 1 --period 1s";
    let traffic = lines(&[json!({"t": T0, "key": "a"}), json!({"t": T0, "key": "a"})]);
    let redis = format!("{options} --redis {}", server.url());
    let decided = replay_with(&[("REDIS_CA", &own)], &redis, &traffic);
    assert!(decided.status.success(), "{}", said(&decided));
    assert_eq!(told(&decided), told(&replay(options, &traffic)));
    // The system does not know the authority.
    let refused = replay(&redis, &traffic);
    assert_eq!(refused.status.code(), Some(1));
    for cause in ["no connection to redis at", "TLS with redis failed", "UnknownIssuer"] {
        assert_eq!(said(&refused).matches(cause).count(), 1, "{}", said(&refused));
    }
}

#[test]
fn redisson_is_told_as_java_would_be() {
    let at =
        |millis: u64, cost: u64| json!({"t": T0 + millis * 1_000 + 999, "key": "a", "cost": cost});
    let op = |millis: u64, op: &str, cost: u64| {
        let mut line = at(millis, cost);
        line["op"] = op.into();
        line
    };
    let traffic = lines(&[
        at(0, 5),
        at(300, 5),
        at(300, 1),
        op(300, "release", 7),
        op(400, "available", 1),
        at(400, 7),
        at(400, 1),
        at(1_299, 4),
        at(1_300, 3),
        at(1_300, 11),
        at(1_300, 1 << 32),
        op(1_300, "penalize", 1),
        json!({"t": T0 + 1_301_000, "op": "refund", "of": 9}),
        op(1_302, "release", 99),
        op(1_302, "release", 99),
        json!({"t": T0 + 1_302_999, "key": "a", "limit": 5}),
        op(1_302, "reset", 1),
    ]);
    let server = Server::for_redisson();
    let options = "--algorithm redisson --limit 10 --period 1s --max-wait 60s";
    for options in [options.to_owned(), format!("{options} --redis {}", server.url())] {
        let output = replay(&options, &traffic);
        assert!(output.status.success(), "{}", said(&output));
        let short: Vec<_> = told(&output)
            .iter()
            .map(|line| {
                let figure = ["retry_after_us", "refunded"].map(|name| line[name].as_u64());
                let figure = figure.into_iter().flatten().next();
                (line["verdict"].as_str().unwrap().to_owned(), figure, line["remaining"].as_u64())
            })
            .collect();
        let short: Vec<_> =
            short.iter().map(|(verdict, a, b)| (verdict.as_str(), *a, *b)).collect();
        assert_eq!(
            short,
            [
                ("allow", None, Some(5)),
                ("allow", None, Some(0)),
                ("deny", Some(700_000), Some(0)),
                ("done", Some(7), Some(7)),
                ("done", None, Some(7)),
                ("allow", None, Some(0)),
                ("deny", Some(900_000), Some(0)),
                ("deny", Some(101_000), Some(0)),
                ("allow", None, Some(0)),
                ("never", None, Some(0)),
                ("error", None, None),
                ("error", None, None),
                ("done", Some(3), Some(3)),
                ("done", Some(7), Some(10)),
                ("done", Some(0), Some(10)),
                ("error", None, None),
                ("done", None, Some(10)),
            ]
        );
    }
    let output =
        replay("--algorithm token_bucket --limit 5 --period 1s", &lines(&[op(0, "release", 1)]));
    assert_eq!(told(&output)[0]["verdict"], "error");
}

#[test]
fn redisson_tells_the_same_in_memory_and_in_redis() {
    let mut dice = fastrand::Rng::with_seed(3);
    let (mut t, mut traffic) = (T0, String::new());
    for number in 1..=1_500 {
        t += [0, 0, 1, 333, 1_000, 199_000, 200_000, 999_999, 1_000_000][dice.usize(..9)];
        if dice.usize(..60) == 0 {
            t -= [1, 200_000, 7_200_000_000][dice.usize(..3)];
        }
        let key = ["a", "b{", "c:d", ""][dice.choose_multiple([0, 0, 0, 1, 1, 2, 3], 1)[0]];
        let mut line = json!({"t": t, "key": key, "cost": dice.u64(0..8)});
        match dice.usize(..12) {
            0 | 1 => line["op"] = ["release", "available"][dice.usize(..2)].into(),
            2 => line["op"] = ["peek", "penalize", "reset"][dice.usize(..3)].into(),
            3 => line["limit"] = 3.into(),
            4 => line["max_wait"] = 90_000_000.into(),
            5 | 6 if number > 1 => {
                line["op"] = "refund".into();
                line["of"] = (number - dice.usize(1..number.min(5))).into();
            }
            _ => {}
        }
        traffic.push_str(&format!("{line}\n"));
    }
    let server = Server::for_redisson();
    let options = "--algorithm redisson --limit 5 --period 1s --allow-clock-steps";
    let memory = replay(options, &traffic);
    let redis = replay(&format!("{options} --redis {}", server.url()), &traffic);
    assert!(memory.status.success() && redis.status.success(), "{}", said(&redis));
    assert_eq!(told(&memory), told(&redis));
    assert_eq!(said(&memory), said(&redis));
    assert_eq!(told(&memory).len(), 1_500);
}

/// A day of 23 hours in Berlin, and months of invoices.
#[test]
fn a_calendar_ends_its_windows_at_local_midnight() {
    // 2026-03-29 00:00 in Berlin.
    let midnight = 1_774_738_800_000_000_u64;
    let hour = 3_600_000_000;
    let traffic = lines(&[
        json!({"t": midnight, "key": "a"}),
        json!({"t": midnight + hour, "key": "a"}),
        json!({"t": midnight + 23 * hour - 1, "key": "a", "op": "peek"}),
        json!({"t": midnight + 23 * hour, "key": "a"}),
        json!({"t": midnight + 24 * hour, "key": "a", "limit": 3}),
    ]);
    let expected = [
        ("allow", 0, 23 * hour),
        ("deny", 0, 22 * hour),
        ("allow", 0, 1),
        ("allow", 0, 24 * hour),
        ("allow", 1, 23 * hour),
    ];
    let server = Server::start();
    let redis = format!(" --redis {}", server.url());
    for on in ["", redis.as_str()] {
        let options = format!(
            "--algorithm fixed_window --limit 1 --calendar day --time-zone Europe/Berlin{on}"
        );
        let output = replay(&options, &traffic);
        assert!(output.status.success(), "{}", said(&output));
        for (line, (verdict, remaining, reset)) in told(&output).iter().zip(expected) {
            let told = (&line["verdict"], &line["remaining"], &line["reset_after_us"]);
            assert_eq!(told, (&json!(verdict), &json!(remaining), &json!(reset)), "{on}: {line}");
        }
    }
    // From 2026-02-27 12:00 in UTC: what is left of the month, the week, the year.
    let traffic = lines(&[json!({"t": 1_772_193_600_000_000_u64, "key": "a"})]);
    for (options, hours) in [
        ("--calendar month --month-begins 31", 12),
        ("--calendar week --week-begins saturday", 12),
        ("--calendar year", 24 * 307 + 12),
    ] {
        let output = replay(&format!("--algorithm fixed_window --limit 1 {options}"), &traffic);
        assert_eq!(told(&output)[0]["reset_after_us"], json!(hours * hour), "{options}");
    }
    for (options, why) in
        [("--calendar day --period 1s", "--period"), ("--calendar fortnight", "fortnight")]
    {
        let output = replay(&format!("--algorithm fixed_window --limit 1 {options}"), &traffic);
        assert!(
            !output.status.success() && said(&output).contains(why),
            "{options}: {}",
            said(&output)
        );
    }
    for (options, why) in [
        ("token_bucket --limit 1 --calendar day", "--calendar is not for this algorithm"),
        ("concurrency --limit 1 --max-hold 0s", "--max-hold must be above 0"),
    ] {
        let output = replay(&format!("--algorithm {options}"), &traffic);
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
    }
}

//! The admin port: who may ask, and what an operator sees and changes.

mod common;

use common::{Answer, Gateway, TOKEN, get, request};
use support::files::Files;
use support::process::{memory, processor_time};

const API: &str = r#"
    [[policy]]
    name = "api"
    algorithm = "fixed_window"
    anchored = true
    limit = 5
    period = "1h"
    key = "header:x-api-key"
    match = { path = "/api/{*rest}" }

    [[policy]]
    name = "pair"
    algorithm = "token_bucket"
    limit = 7
    period = "1h"
    key = ["header:x-api-key", "path"]
    match = { path = "/pair/{*rest}" }

    [[policy]]
    name = "all"
    algorithm = "token_bucket"
    limit = 9
    period = "1h"
    key = "global"
    match = { path = "/all" }
"#;

fn remaining(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["remaining"].as_u64().unwrap_or_else(|| panic!("no integer: {answer:?}"))
}

const GUARDED: [(&str, &str, &str); 7] = [
    ("GET", "/policies", ""),
    ("GET", "/keys/api/alice", ""),
    ("DELETE", "/keys/api/alice", ""),
    ("POST", "/keys/api/alice/penalize?units=5", ""),
    ("PUT", "/switch", "off"),
    ("PUT", "/policies/api/switch", "off"),
    ("GET", "/nothing", ""),
];

#[test]
fn without_the_token_nothing_is_shown_or_changed() {
    let gateway = Gateway::with_policies(API);
    let almost = &TOKEN[..TOKEN.len() - 1];
    let wrong =
        ["Bearer", "Bearer wrong", &format!("Bearer {almost}"), &format!("Basic {TOKEN}"), TOKEN];
    assert_eq!(gateway.get_as("alice", "/api/x").status, 404);
    for (method, path, body) in GUARDED {
        let none = request(gateway.admin, method, path, &[], body.as_bytes());
        assert!(matches!(none.status, 401 | 403), "{method} {path}: {none:?}");
        for value in wrong {
            let headers = [("authorization", value)];
            let answer = request(gateway.admin, method, path, &headers, body.as_bytes());
            assert!(matches!(answer.status, 401 | 403), "{method} {path} {value}: {answer:?}");
        }
    }
    let stands = gateway.admin("GET", "/keys/api/alice", "");
    assert_eq!(remaining(&stands), 4);
}

#[test]
fn without_a_token_set_everything_is_refused() {
    for token in ["", "absent"] {
        let variables = [("ADMIN_TOKEN", token)];
        let variables = if token == "absent" { &[][..] } else { &variables[..] };
        let gateway = Gateway::run(Files::new(), variables).expect("it starts");
        for (method, path, body) in GUARDED {
            for value in ["Bearer ", "Bearer", "Bearer x", ""] {
                let headers = [("authorization", value)];
                let answer = request(gateway.admin, method, path, &headers, body.as_bytes());
                assert!(matches!(answer.status, 401 | 403), "{method} {path}: {answer:?}");
            }
        }
        for path in ["/", "/metrics", "/health"] {
            assert_eq!(get(gateway.admin, path).status, 200, "{path}");
        }
    }
}

#[test]
fn policies_are_listed() {
    let gateway = Gateway::with_policies(API);
    let answer = gateway.admin("GET", "/policies", "");
    assert_eq!(answer.status, 200);
    let list = answer.json();
    let list = list.as_array().or_else(|| list["policies"].as_array()).expect("a list");
    let names: Vec<_> = list.iter().filter_map(|policy| policy["name"].as_str()).collect();
    assert_eq!(names, ["api", "pair", "all"]);
    assert_eq!(list[0]["limit"], 5);
    assert_eq!(list[0]["algorithm"], "fixed_window");
}

#[test]
fn a_key_shows_how_it_stands_and_takes_nothing() {
    let gateway = Gateway::with_policies(API);
    for _ in 0..3 {
        // Never seen.
        assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 5);
    }
    gateway.get_as("alice", "/api/x");
    gateway.get_as("alice", "/api/y");
    assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 3);
    assert_eq!(remaining(&gateway.admin("GET", "/keys/api/bob", "")), 5);
}

#[test]
fn a_key_is_reset_and_penalized() {
    let gateway = Gateway::with_policies(API);
    gateway.get_as("alice", "/api/x");
    let penalized = gateway.admin("POST", "/keys/api/alice/penalize?units=3", "");
    assert!(penalized.status < 300, "{penalized:?}");
    assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 1);
    assert_eq!(gateway.get_as("alice", "/api/x").status, 404);
    assert_eq!(gateway.get_as("alice", "/api/x").status, 429);
    assert!(gateway.admin("DELETE", "/keys/api/alice", "").status < 300);
    assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 5);
    assert_eq!(gateway.get_as("alice", "/api/x").status, 404);
    assert!(gateway.admin("POST", "/keys/api/alice/penalize?units=100", "").status < 300);
    assert_eq!(gateway.get_as("alice", "/api/x").status, 429);
}

#[test]
fn a_key_with_a_plan_is_penalized_by_the_units_of_its_plan() {
    let gateway = Gateway::with_policies(
        "[[policy]]\nname = 'api'\nlimit = 10\nperiod = '1h'\nkey = 'header:x-user'\n\
         plan = 'header:x-plan'\nquotas = { gold = 1000 }\n",
    );
    let gold = "/keys/api/alice?plan=gold";
    assert_eq!(remaining(&gateway.admin("GET", gold, "")), 1000);
    let penalty = "/keys/api/alice/penalize?units=5&plan=gold";
    assert!(gateway.admin("POST", penalty, "").status < 300);
    assert_eq!(remaining(&gateway.admin("GET", gold, "")), 995);
}

#[test]
fn a_key_is_named_as_a_client_sends_it() {
    let gateway = Gateway::with_policies(API);
    gateway.get_as("a b/c%d", "/api/x");
    assert_eq!(remaining(&gateway.admin("GET", "/keys/api/a%20b%2Fc%25d", "")), 4);
    // Parts of a list are segments.
    gateway.get_as("alice", "/pair/x/y");
    assert_eq!(remaining(&gateway.admin("GET", "/keys/pair/alice/%2Fpair%2Fx%2Fy", "")), 6);
    assert_eq!(remaining(&gateway.admin("GET", "/keys/pair/alice/%2Fpair%2Fx", "")), 7);
    gateway.get("/all");
    assert_eq!(remaining(&gateway.admin("GET", "/keys/all/global", "")), 8);
}

#[test]
fn what_is_wrong_is_a_4xx() {
    let gateway = Gateway::with_policies(API);
    for (method, path) in [
        ("GET", "/keys/nobody/alice"),
        ("DELETE", "/keys/nobody/alice"),
        ("POST", "/keys/nobody/alice/penalize?units=1"),
        ("GET", "/nothing"),
    ] {
        assert_eq!(gateway.admin(method, path, "").status, 404, "{method} {path}");
    }
    assert_eq!(gateway.admin("PUT", "/policies/nobody/switch", "off").status, 404);
    for path in [
        "/keys/api/alice/penalize",
        "/keys/api/alice/penalize?units=x",
        "/keys/api/alice/penalize?units=-5",
        "/keys/api/alice/penalize?units=+5",
        "/keys/api/alice/penalize?units=0",
        "/keys/api/alice/penalize?units=99999999999999999999999",
    ] {
        assert_eq!(gateway.admin("POST", path, "").status, 400, "{path}");
    }
    for path in ["/keys/api", "/keys/api/", "/keys/pair/alice", "/keys/api/alice/more"] {
        let status = gateway.admin("GET", path, "").status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    for body in ["", "maybe", "ON", "onn", "off on", "\"off\""] {
        assert_eq!(gateway.admin("PUT", "/switch", body).status, 400, "{body}");
        assert_eq!(gateway.admin("PUT", "/policies/api/switch", body).status, 400, "{body}");
    }
    assert_eq!(gateway.admin("PATCH", "/keys/api/alice", "").status, 405);
    assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 5);
}

#[test]
fn off_takes_nothing_and_on_goes_on() {
    for path in ["/switch", "/policies/api/switch"] {
        let gateway = Gateway::with_policies(API);
        gateway.get_as("alice", "/api/x");
        assert!(gateway.admin("PUT", path, "off").status < 300);
        for _ in 0..10 {
            let answer = gateway.get_as("alice", "/api/x");
            assert_eq!((answer.status, answer.has_fields()), (404, false));
        }
        assert!(gateway.admin("PUT", path, "on").status < 300);
        assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 4);
    }
}

#[test]
fn shadow_takes_and_never_refuses() {
    for path in ["/switch", "/policies/api/switch"] {
        let gateway = Gateway::with_policies(API);
        assert!(gateway.admin("PUT", path, "shadow").status < 300);
        for _ in 0..10 {
            assert_eq!(gateway.get_as("alice", "/api/x").status, 404);
        }
        assert_eq!(remaining(&gateway.admin("GET", "/keys/api/alice", "")), 0);
        assert!(gateway.counter("rate_limit_decisions_total", &["\"api\""]) >= 10);
        assert_eq!(gateway.counter("rate_limit_shadow_refusals_total", &["\"api\""]), 5);
        support::until("the page shows what a shadow would refuse", || {
            let shown = get(gateway.admin, "/metrics.json").json();
            let seconds = shown["seconds"]["api"]["shadow"].as_array().cloned().unwrap_or_default();
            seconds.iter().filter_map(serde_json::Value::as_u64).sum::<u64>() == 5
        });
        assert!(gateway.admin("PUT", path, "on").status < 300);
        assert_eq!(gateway.get_as("alice", "/api/x").status, 429);
    }
}

#[test]
fn of_two_switches_the_laxer_holds_and_both_survive_a_reload() {
    let gateway = Gateway::with_policies(API);
    for _ in 0..5 {
        gateway.get_as("alice", "/api/x");
    }
    let status = || gateway.get_as("alice", "/api/x").status;
    assert_eq!(status(), 429);
    for (global, own, expected) in [
        ("on", "shadow", 404),
        ("shadow", "on", 404),
        ("off", "on", 404),
        ("on", "off", 404),
        ("shadow", "off", 404),
        ("on", "on", 429),
    ] {
        gateway.admin("PUT", "/switch", global);
        gateway.admin("PUT", "/policies/api/switch", own);
        assert_eq!(status(), expected, "{global}, {own}");
    }
    gateway.admin("PUT", "/policies/api/switch", "off");
    gateway.rewrite(&API.replace("limit = 9", "limit = 10"));
    support::until("the new table", || {
        remaining(&gateway.admin("GET", "/keys/all/global", "")) == 10
    });
    assert_eq!(status(), 404);
    gateway.admin("PUT", "/policies/api/switch", "on");
    assert_eq!(status(), 429);
}

#[test]
fn a_policy_that_its_row_turns_off_is_said_to_be_off() {
    let gateway = Gateway::with_policies(&API.replacen("limit", "enabled = false\nlimit", 1));
    let answer = gateway.admin("PUT", "/policies/api/switch", "on").json();
    assert_eq!((&answer["switch"], &answer["set"]), (&"off".into(), &"on".into()));
    let listed = gateway.admin("GET", "/policies", "").json();
    let api = &listed["policies"][0];
    assert_eq!((&api["switch"], &api["set"]), (&"off".into(), &"on".into()));
    assert_eq!((&listed["counts"]["off"], &listed["counts"]["on"]), (&1.into(), &2.into()));
    assert_eq!(get(gateway.admin, "/metrics.json").json()["counts"], listed["counts"]);
    assert!(get(gateway.admin, "/health").text().contains("2 policies in force"));
    for _ in 0..7 {
        assert_eq!(gateway.get_as("alice", "/api/x").status, 404);
    }
    let metrics = get(gateway.admin, "/metrics").text();
    assert!(metrics.contains("rate_limit_switched_off_total{limiter=\"api\"} 7"), "{metrics}");
}

#[test]
fn decisions_are_counted_by_policy_and_outcome() {
    let gateway = Gateway::with_policies(API);
    for _ in 0..7 {
        gateway.get_as("alice", "/api/x");
    }
    let count = |outcome: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        let text = get(gateway.admin, "/metrics").text();
        let line =
            text.lines().find(|line| line.contains("limiter=\"api\"") && line.contains(&outcome));
        line.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    assert_eq!((count("admitted"), count("denied")), (Some(5), Some(2)));
}

#[test]
fn the_page_shows_the_last_minute() {
    let gateway = Gateway::with_policies(API);
    let page = get(gateway.admin, "/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    let text = page.text();
    let outside: Vec<_> = ["src=\"http", "href=\"http", "src=\"//", "@import", "url(http"]
        .into_iter()
        .filter(|from| text.contains(from))
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
    gateway.get_as("alice", "/api/x");
    support::until("the decision is shown", || {
        let shown = get(gateway.admin, "/metrics.json").json();
        let seconds = shown["seconds"]["api"]["allowed"].as_array().cloned().unwrap_or_default();
        seconds.iter().filter_map(serde_json::Value::as_u64).sum::<u64>() == 1
    });
}

#[test]
fn changes_leave_a_line_with_time_and_address() {
    let mut gateway = Gateway::with_policies(API);
    gateway.admin("GET", "/keys/api/alice-secret", "");
    gateway.admin("PUT", "/policies/none/switch", "off");
    for (method, path, body, what) in [
        ("PUT", "/switch", "shadow", "everything is switched shadow"),
        ("PUT", "/policies/api/switch", "off", "api is switched off"),
        ("DELETE", "/keys/api/alice-secret", "", "a key of api is reset"),
        ("POST", "/keys/api/alice-secret/penalize?units=5", "", "a key of api is penalized by 5"),
    ] {
        assert_eq!(gateway.admin(method, path, body).status, 200);
        let line = || {
            let stderr = gateway.process.stderr();
            stderr.lines().find(|line| line.ends_with(what)).map(str::to_owned)
        };
        support::until(what, || line().is_some());
        let line = line().unwrap();
        assert!(line.contains("Z, 127.0.0.1:"), "{line}");
    }
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
    let lines = gateway.process.stderr();
    assert!(!lines.contains("secret"), "{lines}");
    // What only shows something, or fails, leaves none.
    let of_changes = lines.lines().filter(|line| line.contains("127.0.0.1:"));
    assert_eq!(of_changes.count(), 4, "{lines}");
}

/// The sum of what the page has of an outcome in the last minute: of all requests, or of a policy.
fn shown(gateway: &Gateway, policy: Option<&str>, outcome: &str) -> u64 {
    let shown = get(gateway.admin, "/metrics.json").json();
    let of = policy.map_or(&shown["requests"], |policy| &shown["seconds"][policy]);
    let counts = of[outcome].as_array().cloned().unwrap_or_default();
    counts.iter().filter_map(serde_json::Value::as_u64).sum()
}

#[test]
fn what_a_policy_lets_pass_while_it_is_off_is_counted_and_shown() {
    for path in ["/switch", "/policies/api/switch"] {
        let gateway = Gateway::with_policies(API);
        gateway.admin("PUT", path, "off");
        (0..7).for_each(|_| _ = gateway.get_as("alice", "/api/x"));
        assert_eq!(gateway.counter("rate_limit_switched_off_total", &["\"api\""]), 7);
        assert_eq!(gateway.counter("rate_limit_switched_off_total", &["\"pair\""]), 0);
        support::until("the page shows it", || shown(&gateway, Some("api"), "off") == 7);
        assert_eq!(shown(&gateway, None, "off"), 7);
    }
}

#[test]
fn a_request_is_counted_once_whatever_policies_take_it() {
    let everybody = "[[policy]]\nname = \"everybody\"\nlimit = 6\nperiod = \"1h\"\n\
                     match = { path = \"/api/{*rest}\" }\n";
    let gateway = Gateway::with_policies(&format!("{API}\n{everybody}"));
    (0..7).for_each(|_| _ = gateway.get_as("alice", "/api/x"));
    (0..3).for_each(|_| _ = gateway.get("/no/policy"));
    support::until("the page shows them", || shown(&gateway, None, "no_policy") == 3);
    assert_eq!((shown(&gateway, None, "allowed"), shown(&gateway, None, "limited")), (5, 2));
    assert_eq!(shown(&gateway, Some("everybody"), "allowed"), 5);
    let requests = ["limiter=\"all requests\"", "outcome="];
    assert_eq!(gateway.counter("rate_limit_decisions_total", &requests), 7);
    assert_eq!(gateway.counter("rate_limit_unmatched_total", &[]), 3);
}

#[test]
fn names_of_rows_that_are_gone_leave_the_metrics_and_the_page() {
    let gateway = Gateway::with_policies(API);
    gateway.get_as("alice", "/api/x");
    let metrics = || get(gateway.admin, "/metrics").text();
    assert!(metrics().contains("limiter=\"api\"") && metrics().contains("limiter=\"pair\""));
    let pair = &API[API.find("[[policy]]\n    name = \"pair\"").expect("a row")..];
    gateway.rewrite(pair);
    support::until("the row has left", || !metrics().contains("limiter=\"api\""));
    assert!(metrics().contains("limiter=\"pair\""));
    let page = get(gateway.admin, "/metrics.json").json();
    let names = page["policies"].as_array().expect("policies").iter();
    assert_eq!(names.map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(), ["pair", "all"]);
    // A row that comes back begins anew, and is counted again.
    gateway.rewrite(API);
    support::until("the row is back", || metrics().contains("limiter=\"api\""));
    let admitted = || gateway.counter("rate_limit_decisions_total", &["\"api\"", "\"admitted\""]);
    assert_eq!(admitted(), 0);
    // Its series are there shortly before it decides.
    support::until("the row decides", || {
        gateway.get_as("bob", "/api/x");
        admitted() > 0
    });
    assert_eq!(admitted(), 1);
}

// Case 172.
#[test]
fn ten_thousand_policies_cost_little_while_nobody_looks() {
    let row = |n| {
        format!(
            "[[policy]]\nname = \"policy-{n}\"\nalgorithm = \"token_bucket\"\nlimit = 5\n\
             period = \"1s\"\nkey = \"header:x-api-key\"\nmatch = {{ path = \"/{n}\" }}\n"
        )
    };
    let gateway = Gateway::with_policies(&(0..10_000).map(row).collect::<String>());
    let id = gateway.process.id();
    let (before, begun) = (processor_time(id), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let share = (processor_time(id) - before).div_duration_f64(begun.elapsed());
    let memory = memory(id) >> 20;
    let text = get(gateway.admin, "/metrics");
    assert_eq!(text.status, 200);
    println!("{:.2} % of a core, {memory} MiB, {} bytes", share * 100.0, text.body.len());
    // Without optimization; `measures.rs` has the figures of a release.
    assert!(share < 0.1, "{share}");
    assert!(memory < 130, "{memory} MiB");
}

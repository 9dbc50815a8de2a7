//! The meaning of each field of a row.

use tower_sluice::key::{ClientIp, PeerAddr};

use super::*;

/// The issue's example, as small as a row can be useful.
const API: &str = r#"
    [[policy]]
    name = "api"
    algorithm = "token_bucket"
    limit = 5
    period = "1s"
    burst = 5
    max_wait = "500ms"
    key = "header:x-api-key"
    match = { path = "/api/{*rest}", method = ["GET", "POST"] }
    cost = 1
    on_error = "deny"
    enabled = true
    shadow = false
"#;

#[tokio::test(start_paused = true)]
async fn ten_at_once_are_five_admitted_two_delayed_three_refused() {
    let policies = policies(API);
    let alice = request("GET", "/api/x", &["x-api-key: alice"]);
    assert_eq!(burst(&policies, &alice, 10).await, (5, vec![200, 400], 3));
    let bob = request("POST", "/api/x/y", &["x-api-key: bob"]);
    assert_eq!(burst(&policies, &bob, 10).await, (5, vec![200, 400], 3));
}

#[tokio::test(start_paused = true)]
async fn a_supplier_has_one_pace_for_all_callers() {
    let policies = policies(
        "interface = [{ name = 'weather', rate = 5, cache = 0.5, status = 1 },
                      { name = 'news', rate = 5 }, { name = 'maps', rate = 5, status = 0 }]",
    );
    for path in ["/weather", "/news/today"] {
        let call = request("GET", path, &[]);
        assert_eq!(burst(&policies, &call, 10).await, (5, vec![200, 400], 3), "{path}");
    }
    // One pace for everything under the name.
    assert!(!decide(&policies, &request("GET", "/weather/a/b", &[])).await.is_admitted());
    for path in ["/maps", "/maps/x", "/weathers", "/x/weather"] {
        assert!(check(&policies, &request("GET", path, &[])).await.is_none(), "{path}");
    }
    let modes: Vec<_> = policies.policies().iter().map(|policy| policy.mode()).collect();
    assert_eq!(modes, [SwitchMode::On, SwitchMode::On, SwitchMode::Off]);
}

#[tokio::test(start_paused = true)]
async fn the_ratio_of_a_store_is_what_may_wait() {
    for (algorithm, waits) in [
        ("token_bucket", vec![200, 400]),
        ("smooth_bursty", vec![200, 400]),
        ("sliding_log", vec![]),
    ] {
        let policies = policies(&format!(
            "[[policy]]\nname = 'a'\nalgorithm = '{algorithm}'\nlimit = 5\nperiod = '1s'\ncache_ratio = 0.5"
        ));
        let (admitted, delayed, _) = burst(&policies, &request("GET", "/", &[]), 10).await;
        // Guava's pace lets the next caller pay.
        let expected = if algorithm == "smooth_bursty" { 6 } else { 5 };
        assert_eq!((admitted, delayed), (expected, waits), "{algorithm}");
    }
    // Half of a store that takes 2 s to fill.
    let policies =
        policies("[[policy]]\nname = 'a'\nlimit = 5\nperiod = '1s'\nburst = 10\ncache_ratio = 0.5");
    let (admitted, waits, refused) = burst(&policies, &request("GET", "/", &[]), 20).await;
    assert_eq!((admitted, waits.len(), refused), (10, 5, 5));
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_has_its_defaults_and_waits_for_nothing_unless_it_may() {
    for (algorithm, admitted) in [
        ("token_bucket", 5),
        ("budget", 5),
        ("concurrency", 5),
        ("fixed_window", 5),
        ("sliding_log", 5),
        ("sliding_window", 5),
        ("sliding_counter", 5),
        ("smooth_bursty", 6),
        ("smooth_warming_up", 1),
        #[cfg(feature = "redisson")]
        ("redisson", 5),
    ] {
        let period = if algorithm == "concurrency" { "" } else { "period = '1s'" };
        let policies = policies(&format!(
            "[[policy]]\nname = 'a'\nalgorithm = '{algorithm}'\nlimit = 5\n{period}"
        ));
        let all = burst(&policies, &request("GET", "/", &[]), 10).await;
        assert_eq!(all, (admitted, vec![], 10 - admitted), "{algorithm}");
        assert_eq!(policies.policies()[0].policy().algorithm(), algorithm);
    }
}

#[tokio::test(start_paused = true)]
async fn settings_of_an_algorithm_reach_it() {
    let left = async |settings: &str| {
        let policies = policies(&format!("[[policy]]\nname = 'a'\n{settings}"));
        let (admitted, waits, _) = burst(&policies, &request("GET", "/", &[]), 30).await;
        (admitted, waits.len())
    };
    let base = "limit = 5\nperiod = '1s'\nalgorithm =";
    assert_eq!(left(&format!("{base} 'token_bucket'\nburst = 8")).await, (8, 0));
    assert_eq!(left(&format!("{base} 'smooth_bursty'\nburst = 8")).await, (9, 0));
    assert_eq!(left(&format!("{base} 'smooth_bursty'\nmax_burst = '2s'")).await, (11, 0));
    let own = "wait_for_own_cost = true\nmax_wait = '1s'";
    assert_eq!(left(&format!("{base} 'smooth_bursty'\n{own}")).await, (5, 5));
    assert_eq!(
        left(&format!("{base} 'fixed_window'\nanchored = true\nmax_wait = '1s'")).await,
        (5, 5)
    );
    let long = "limit = 20000\nperiod = '1s'\nalgorithm = 'sliding_log'\nmax_limit = 20000";
    assert_eq!(left(long).await, (30, 0));
    assert_eq!(left(&format!("{base} 'sliding_window'\ncells = 1")).await, (5, 0));
    let warm = format!("{base} 'smooth_warming_up'\nwarm_up = '4s'\ncold_factor = 2.0");
    assert_eq!(left(&warm).await, (1, 0));
    // A wait that a row allows can be reserved, however long it is.
    assert_eq!(left("limit = 1\nperiod = '1m'\nmax_wait = '5m'").await, (1, 5));
    assert_eq!(left("limit = 1\nperiod = '1m'\nmax_wait = '5m'\nhorizon = '2m'").await, (1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_body_is_a_cost() {
    let policies =
        policies("[[policy]]\nname = 'a'\nlimit = 4\nperiod = '1h'\ncost = 'content_length_kb'");
    let remaining = async |length: &str| {
        let length = format!("content-length: {length}");
        let decision = decide(&policies, &request("POST", "/", &[&length])).await;
        policies.get("a").unwrap().reset(&["global"]).await.unwrap();
        (decision.is_admitted(), decision.remaining(), decision.retry_after())
    };
    assert_eq!(remaining("0").await, (true, Some(3), None));
    assert_eq!(remaining("1").await, (true, Some(3), None));
    assert_eq!(remaining("1024").await, (true, Some(3), None));
    assert_eq!(remaining("1025").await, (true, Some(2), None));
    assert_eq!(remaining("4096").await, (true, Some(0), None));
    // It can never fit.
    for length in ["4097", "18446744073709551615"] {
        assert_eq!(remaining(length).await, (false, Some(4), None), "{length}");
    }
    assert_eq!(decide(&policies, &request("POST", "/", &[])).await.remaining(), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_what_its_parts_say() {
    let left = async |key: &str, one: &[&str], other: &[&str], path: [&str; 2]| {
        let policies =
            policies(&format!("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nkey = {key}"));
        let _ = decide(&policies, &request("GET", path[0], one)).await;
        decide(&policies, &request("GET", path[1], other)).await.remaining()
    };
    let (same, different) = (Some(7), Some(8));
    assert_eq!(left("'path'", &[], &[], ["/a", "/a?x=1"]).await, same);
    assert_eq!(left("'path'", &[], &[], ["/a", "/%61"]).await, same);
    assert_eq!(left("'path'", &[], &[], ["/a", "/b"]).await, different);
    let host = |name| [name];
    assert_eq!(
        left("'host'", &host("host: A.example:80"), &host("host: a.example"), ["/", "/"]).await,
        same
    );
    assert_eq!(
        left("'host'", &host("host: a.example"), &host("host: b.example"), ["/", "/"]).await,
        different
    );
    assert_eq!(
        left("'host'", &["host: a.example"], &[], ["/", "http://A.example:80/"]).await,
        same
    );
    let two = "['header:x-a', 'header:x-b']";
    assert_eq!(left(two, &["x-a: 1", "x-b: 23"], &["x-a: 1", "x-b: 23"], ["/", "/"]).await, same);
    assert_eq!(
        left(two, &["x-a: 1", "x-b: 23"], &["x-a: 12", "x-b: 3"], ["/", "/"]).await,
        different
    );
    assert_eq!(left("'global'", &["x-a: 1"], &["x-a: 2"], ["/a", "/b"]).await, same);
}

/// Another program may read another one of them.
#[test]
fn a_request_of_several_hosts_has_no_key() {
    let policies = policies("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nkey = 'host'");
    for (path, headers) in [
        ("/", &["host: a.example", "host: b.example"][..]),
        ("/", &["host: a.example", "host: "]),
        ("http://b.example/", &["host: a.example"]),
        ("/", &["host: "]),
        ("/", &[]),
    ] {
        let keyed = policies.charge(Head::from(&request("GET", path, headers)));
        let (Keyed::Invalid(error) | Keyed::Missing(error)) = &keyed else { panic!("{keyed:?}") };
        let names_one = path == "/" && headers.len() < 2;
        assert_eq!(matches!(keyed, Keyed::Missing(_)), names_one, "{path} {headers:?}");
        assert_eq!(error.kind(), ErrorKind::Request);
    }
}

/// Some servers read `post` as POST.
#[tokio::test(start_paused = true)]
async fn a_method_is_taken_in_any_case() {
    let policies = policies(
        "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nmatch = { method = ['Post', 'PUT'] }",
    );
    for method in ["POST", "post", "pOST", "put"] {
        assert!(check(&policies, &request(method, "/", &[])).await.is_some(), "{method}");
    }
    for method in ["GET", "POSTS", "pos"] {
        assert!(check(&policies, &request(method, "/", &[])).await.is_none(), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_found_by_what_a_client_sends() {
    let policies = policies(
        "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nkey = ['header:x-a', 'path', 'host']",
    );
    let call = request("GET", "/x/%79/", &["x-a: s3cret", "host: Example.org:80"]);
    let _ = decide(&policies, &call).await;
    let policy = policies.get("a").unwrap();
    assert_eq!(policy.key_parts(), 3);
    let key = ["s3cret", "/x/y", "example.ORG"];
    assert_eq!(policy.peek(&key).await.unwrap().remaining(), Some(8));
    assert_eq!(policy.peek(&["other", "/x/y", "example.org"]).await.unwrap().remaining(), Some(9));
    assert_eq!(policy.penalize(&key, 5).await.unwrap().remaining(), Some(3));
    assert_eq!(policy.reset(&key).await.unwrap().remaining(), Some(9));
    assert_eq!(policy.peek(&key[..2]).await.unwrap_err().kind(), ErrorKind::Request);
    assert!(policies.get("b").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_policy_takes_requests_by_header_and_by_name() {
    let policies = policies(
        "{ name = 'gold', limit = 1, period = '1h', match = { header = { x-plan = 'gold' } } },
         { name = 'plan', limit = 2, period = '1h', match = { header = 'x-plan' } },
         { name = 'upload', limit = 3, period = '1h', match = { name = 'upload' } },",
    );
    let gold = decide(&policies, &request("GET", "/", &["x-plan: gold"])).await;
    assert_eq!(gold.remaining(), Some(0));
    // HTTP/2 keeps blanks around a value: they get nobody past a policy.
    assert!(!decide(&policies, &request("GET", "/", &["x-plan: gold "])).await.is_admitted());
    let plan = decide(&policies, &request("GET", "/", &["x-plan: free"])).await;
    assert_eq!(plan.remaining(), Some(0));
    assert!(check(&policies, &request("GET", "/", &[])).await.is_none());
    let named = policies.named("upload");
    let keyed = tower_sluice::key::KeyExtractor::extract(&named, &request("GET", "/", &[]));
    let Keyed::Charge(charge) = keyed else { panic!("{keyed:?}") };
    let decision = tower_sluice::Limiter::check(&policies, &charge).await.unwrap();
    assert_eq!((decision.limiter(), decision.remaining()), (Some("upload"), Some(2)));
}

/// HTTP/2 has no field `Host`, and a target with a host outweighs it.
#[tokio::test(start_paused = true)]
async fn a_policy_takes_requests_by_each_name_of_their_host() {
    let policies = policies(
        "{ name = 'api', limit = 1, period = '1h', \
           match = { header = { Host = ' API.example.com:443' } } }",
    );
    for (target, headers, is_taken) in [
        ("/", &["host: api.example.com"][..], true),
        ("/", &["host: Api.Example.com:80"], true),
        ("/", &["host: api.example.com "], true),
        ("https://api.example.com/x", &[], true),
        ("http://api.example.com/x", &["host: other"], true),
        ("http://other/x", &["host: api.example.com"], true),
        ("/", &["host: example.com"], false),
        ("/", &[], false),
    ] {
        let answer = check(&policies, &request("GET", target, headers)).await;
        assert_eq!(answer.is_some(), is_taken, "{target} {headers:?}");
    }
}

/// A source of texts, such as a hash of Redis.
#[tokio::test(start_paused = true)]
async fn a_row_of_texts_is_that_of_a_file() {
    let from_toml = rows(API);
    let texts = Row::from_texts([
        ("name", "api"),
        ("algorithm", "token_bucket"),
        ("limit", "5"),
        ("period", "1s"),
        ("burst", "5"),
        ("max_wait", "500ms"),
        ("cache_ratio", ""),
        ("key", "header:x-api-key"),
        ("cost", "1"),
        ("match", r#"{"path": "/api/{*rest}", "method": ["GET", "POST"]}"#),
        ("on_error", "deny"),
        ("enabled", "true"),
        ("shadow", "false"),
    ]);
    let from_texts = Rows::from_iter([texts]);
    assert_eq!(from_toml, from_texts);
    assert!(Policies::builder().build(&from_texts).is_ok());
    // As a table of SQL has them.
    let numbers = rows(API).policy[0].clone().with("enabled", 1).with("shadow", 0);
    assert!(Policies::builder().build(&Rows::from_iter([numbers])).is_ok());
}

/// A `Debug` text stands in logs. Serialized, a row is whole.
#[test]
fn values_of_headers_show_in_no_debug_text() {
    let table = "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'
        match = { header = { x-internal = 's3cret' } }";
    let policies = policies(table);
    let handle = &policies.policies()[0];
    let shown = format!("{policies:?} {handle:?} {:?}", handle.policy());
    assert!(shown.contains("x-internal") && !shown.contains("s3cret"), "{shown}");
    let row = serde_json::to_value(handle.policy()).unwrap();
    assert_eq!(row["match"]["header"]["x-internal"], "s3cret");
}

#[tokio::test(start_paused = true)]
async fn a_client_has_its_address_as_its_key() {
    let client_ip = ClientIp::new().try_trusted_networks("10.0.0.0/8").unwrap();
    let table = rows("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nkey = 'client_ip'");
    let policies = Policies::builder().client_ip(client_ip).build(&table).unwrap();
    let left = async |peer: &str, headers: &[&str]| {
        let mut call = request("GET", "/", headers);
        call.extensions_mut().insert(PeerAddr(peer.parse().unwrap()));
        decide(&policies, &call).await.remaining()
    };
    assert_eq!(left("192.0.2.1:1", &["x-forwarded-for: 203.0.113.9"]).await, Some(8));
    assert_eq!(left("192.0.2.1:2", &[]).await, Some(7));
    assert_eq!(left("10.0.0.5:1", &["x-forwarded-for: 203.0.113.9"]).await, Some(8));
    assert_eq!(left("[2001:db8:1:2::3]:1", &[]).await, Some(8));
    assert_eq!(left("[2001:db8:1:2::4]:1", &[]).await, Some(7));
    let policy = policies.get("a").unwrap();
    for (key, left) in [("192.0.2.1", 7), ("203.0.113.9", 8), ("2001:db8:1:2::9", 7), ("::1", 9)] {
        assert_eq!(policy.peek(&[key]).await.unwrap().remaining(), Some(left), "{key}");
    }
    assert!(policy.peek(&["alice"]).await.is_err());
    let keyed = policies.charge(Head::from(&request("GET", "/", &[])));
    assert!(matches!(keyed, Keyed::Missing(_)));
}

/// A suspended plan refuses every request, also by its local share, and says no time to come back.
/// That is no error, alone and beside a row that admits.
#[tokio::test(start_paused = true)]
async fn a_limit_of_0_admits_nothing() {
    for fields in [
        "algorithm = 'smooth_bursty', limit = 0, period = '1h'",
        "algorithm = 'smooth_warming_up', limit = 0, period = '1h', max_wait = '5s'",
        "algorithm = 'concurrency', limit = 0",
        "algorithm = 'budget', limit = 0, period = '1h'",
        "algorithm = 'fixed_window', limit = 0, period = '1h'",
        "algorithm = 'sliding_log', limit = 0, period = '1h'",
        "algorithm = 'sliding_window', limit = 0, period = '1h'",
        "algorithm = 'sliding_counter', limit = 0, period = '1h'",
        "limit = 0, period = '1h', burst = 20, cost = 3, cache_ratio = 0.5",
        "limit = 0, period = '1h', keep_free = '20%', on_error = { local = 9 }",
    ] {
        let row = format!("{{ name = 'plan', {fields} }}");
        let beside = format!("{row}, {{ name = 'other', limit = 9, period = '1h' }}");
        for policies in [row, beside].map(|table| policies(&table)) {
            let refused = decide(&policies, &request("GET", "/", &[])).await;
            assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None }, "{fields}");
            assert_eq!(refused.remaining(), Some(0), "{fields}");
        }
    }
}

/// An operator gives units back by the policy's name.
#[tokio::test(start_paused = true)]
async fn a_handle_grants_units() {
    let rows = "policy = [
        { name = 'api', limit = 10, period = '1h', cost = 8 },
        { name = 'running', algorithm = 'concurrency', limit = 4 },
    ]";
    let policies = policies(rows);
    assert!(decide(&policies, &request("GET", "/", &[])).await.is_admitted());
    let grant = |name: &str, units| {
        let handle = policies.get(name).expect("a policy");
        async move { handle.grant(&["global"], units).await }
    };
    assert_eq!(grant("api", 5).await.unwrap().remaining(), Some(7));
    assert_eq!(grant("api", 5).await.unwrap().remaining(), Some(10));
    assert_eq!(grant("running", 1).await.unwrap_err().kind(), ErrorKind::Configuration);
}

/// A batch job leaves a part of the limit that it shares with people.
#[tokio::test(start_paused = true)]
async fn a_row_leaves_units_free() {
    for kept in ["20", "'20%'"] {
        let policies = policies(&format!(
            "policy = [{{ name = 'jobs', limit = 100, period = '1h', cost = 40, keep_free = {kept} }}]"
        ));
        let call = request("GET", "/", &[]);
        assert_eq!(decide(&policies, &call).await.remaining(), Some(60));
        assert!(decide(&policies, &call).await.is_admitted());
        let refused = decide(&policies, &call).await;
        assert!(!refused.is_admitted());
        assert_eq!((refused.remaining(), refused.kept_free()), (Some(20), 20));
        assert_eq!(policies.policies()[0].policy().keep_free(), 20);
    }
    for (field, wrong) in [
        ("keep_free = 100", "ever admitted"),
        ("keep_free = '100%'", "ever admitted"),
        ("cost = 81, keep_free = '20%'", "leaves keep_free"),
        ("keep_free = 9223372036854775807", "leaves keep_free"),
        ("keep_free = '101%'", "20%"),
        ("keep_free = 'some'", "20%"),
    ] {
        let table = format!("policy = [{{ name = 'jobs', limit = 100, period = '1h', {field} }}]");
        let error = Policies::builder().build(&toml::from_str(&table).unwrap()).unwrap_err();
        assert!(format!("{error:?} {error}").contains(wrong), "{field}: {error}");
    }
}

//! No spelling of a path gets around the policies that take it.

use std::convert::Infallible;

use http::{Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::HttpResponder;

use super::*;

/// A policy that takes these patterns.
fn taking(patterns: &str) -> Policies {
    policies(&format!(
        "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nmatch = {{ path = {patterns} }}"
    ))
}

fn keyed(policies: &Policies, path: &str) -> Keyed {
    policies.charge(Head::from(&request("GET", path, &[])))
}

/// Returns true if the path is refused, since servers read it in several ways.
fn is_refused(policies: &Policies, path: &str) -> bool {
    matches!(keyed(policies, path), Keyed::Invalid(_))
}

/// Decides about a path that the policies of these names take.
async fn take(policies: &Policies, path: &str, names: &[&str]) -> Decision {
    let decision = decide(policies, &request("GET", path, &[])).await;
    let found: Vec<_> = decision.policies().map(|one| one.name().to_owned()).collect();
    assert_eq!(found, names, "{path}");
    decision
}

#[test]
fn each_spelling_with_one_reading_is_taken() {
    for (pattern, paths) in [
        ("/api/{*rest}", &["/api/x", "/%61pi/x", "/api/x/", "/api/%78/y"][..]),
        ("/api/x", &["/api/x", "/%61pi/x/"]),
        ("/a/b", &["/a/b", "/a/%62", "/a/b/"]),
        ("/a/b/", &["/a/b", "/a/b/"]),
        ("/users/{id}", &["/users/7", "/users/7/", "/users/a%20b", "/users/50%25off"]),
        ("/v1/messages:send", &["/v1/messages:send", "/v1/messages%3Asend", "/v1/messages%3asend"]),
        ("/v1/messages%3Asend", &["/v1/messages:send", "/v1/messages%3asend"]),
        ("/a@b", &["/a@b", "/a%40b"]),
        ("/caf%c3%a9", &["/caf%C3%A9", "/caf%c3%a9", "/caf\u{e9}", "/c%61f%c3%A9"]),
        ("/caf%C3%A9", &["/caf%C3%A9", "/caf%c3%a9", "/caf\u{e9}"]),
        ("/caf\u{e9}", &["/caf%C3%A9", "/caf%c3%a9", "/caf\u{e9}"]),
        ("/{{id}}/{id}", &["/{id}/7", "/%7Bid%7d/7"]),
        ("/100%", &["/100%", "/100%25"]),
        ("/.well-known/{*rest}", &["/.well-known/x", "/%2Ewell-known/x"]),
        ("/", &["/"]),
    ] {
        let policies = taking(&format!("'{pattern}'"));
        for path in paths {
            let keyed = keyed(&policies, path);
            assert!(matches!(keyed, Keyed::Charge(_)), "{pattern} {path}: {keyed:?}");
        }
    }
}

// Case 168.
#[test]
fn a_path_that_servers_read_in_several_ways_is_refused() {
    let policies = taking("'/login'");
    for path in [
        // Python's http.server.
        "/login/.",
        "/login/x/..",
        "/login%2f.",
        "/login//.",
        "//login",
        "/x/%2e%2e/login/",
        "/login/..",
        // Tomcat.
        "/login;a=b",
        "/;a=b/login",
        "/x/..;/login",
        "/x/%2e%2e;a/login;b",
        "/login%3Ba=b",
        // A reader of backslashes, and one that knows encoded ones.
        "/x\\..\\login",
        "/x%5c..%5Clogin/.",
        // A server that decodes what another one has decoded.
        "/%256cogin",
        "/x%252f..%252Flogin",
        "/%u006cogin",
        "/login%3Fx",
        "/login%23",
        // A server that finds a host in it: Node's `new URL`, Python's `urlsplit`.
        "//x/login",
        "/\\x/login",
        "/%5cx:80/login/",
        // Node's `url.parse` trims, others cut or drop.
        "/login%20",
        "/login%C2%A0",
        "/login%EF%BB%BF/",
        "/lo%09gin",
        "/login%00",
        // An overlong slash, and a byte that many servers replace.
        "/x%C0%AFlogin",
        "/login%FF",
        // Wherever it stands, also far from the path of the row.
        "/static/a//b",
        "/files/a%2Fb",
    ] {
        let Keyed::Invalid(error) = keyed(&policies, path) else { panic!("{path}") };
        assert_eq!(error.kind(), ErrorKind::Request, "{path}");
        let says = "in a path in several ways";
        assert!(error.to_string().contains(says), "{path}: {error}");
    }
}

/// Authentication would not help, and the remedy is for the operator.
#[tokio::test(start_paused = true)]
async fn such_a_path_is_400_whatever_the_status_without_a_key() {
    let policies = policies(
        "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nmatch = '/login'\nkey = 'header:x-user'",
    );
    let respond = HttpResponder::new().text().no_key(StatusCode::UNAUTHORIZED);
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(String::from("inner")))
    });
    let service = policies.layer().respond(respond).layer(inner);
    for (path, status, text) in [
        ("/login", 401, "request has no header x-user to limit by"),
        ("/%2e/login", 400, "servers read `..` in a path in several ways"),
    ] {
        let response = service.clone().oneshot(request("GET", path, &[])).await.unwrap();
        assert_eq!((response.status().as_u16(), response.body().as_str()), (status, text));
    }
    let Keyed::Invalid(error) = keyed(&policies, "//login") else { panic!() };
    assert!(format!("{error:#}").contains("the policy \"a\": a table may `allow_in_paths`"));
}

/// Other policies have nothing to do with the path.
#[test]
fn only_a_policy_with_a_path_refuses_a_path() {
    let row = |rest: &str| format!("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\n{rest}");
    for (rest, is_path_used) in [
        ("", false),
        ("key = 'global'\nmatch = { method = 'GET' }", false),
        ("match = { path = '/login', method = 'POST' }", false),
        ("match = { path = '/login', header = 'x-api-key' }", false),
        ("match = { path = '/login', method = 'GET' }", true),
        ("key = ['global', 'path']", true),
    ] {
        let policies = policies(&row(rest));
        assert_eq!(is_refused(&policies, "//x/login"), is_path_used, "{rest}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_not_on_refuses_no_path() {
    let policies = taking("'/login'");
    policies.global_switch().set(SwitchMode::Shadow);
    let seen = check(&policies, &request("GET", "//login", &[])).await.unwrap().unwrap();
    assert!(seen.is_admitted() && matches!(seen.shadowed(), Some(Err(_))), "{seen:?}");
    policies.global_switch().set(SwitchMode::Off);
    assert!(matches!(keyed(&policies, "//login"), Keyed::Exempt));
    policies.global_switch().set(SwitchMode::On);
    assert!(is_refused(&policies, "//login"));
}

/// The table says how the server behind it reads paths.
#[tokio::test(start_paused = true)]
async fn a_part_that_the_table_allows_stays_in_the_path() {
    let table = "allow_in_paths = ['%2f', ';']\n
        [[policy]]\nname = 'project'\nlimit = 9\nperiod = '1h'\nmatch = '/projects/{id}'\nkey = 'path'\n
        [[policy]]\nname = 'v1'\nlimit = 9\nperiod = '1h'\nmatch = '/a;v=1'";
    let policies = policies(table);
    for (path, names, left) in [
        ("/projects/a%2Fb", &["project"][..], 8),
        ("/projects/a%2fb", &["project"], 7),
        ("/projects/a", &["project"], 8),
        ("/projects/a;b", &["project"], 8),
        ("/projects/a%3Bb", &["project"], 7),
        ("/a;v=1", &["v1"], 8),
    ] {
        assert_eq!(take(&policies, path, names).await.remaining(), Some(left), "{path}");
    }
    for path in ["/projects/a/b", "/a", "/a;v=2"] {
        assert!(matches!(keyed(&policies, path), Keyed::Exempt), "{path}");
    }
    for path in ["//projects/a", "/projects/..", "/projects/a%5Cb", "/a;v=1/.."] {
        assert!(is_refused(&policies, path), "{path}");
    }
    let peeked = policies.get("project").unwrap().peek(&["/projects/a%2Fb/"]).await.unwrap();
    assert_eq!(peeked.remaining(), Some(7));
}

#[test]
fn an_allowed_part_is_checked_with_the_table() {
    let built = |allowed: &[&str]| {
        let mut table = rows("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nmatch = '/a'");
        table.allow_in_paths = allowed.iter().map(|part| (*part).to_owned()).collect();
        Policies::builder().build(&table)
    };
    let all = ["//", "..", "%2F", "%5C", ";", "%3F", "%23", "%25", "%20", "%00", "%FF"];
    let policies = built(&all).unwrap();
    for path in ["//x", "/x/..", "/x%2F", "/x\\", "/x;", "/%3F", "/%23", "/%2541", "/%20", "/%FF"] {
        assert!(matches!(keyed(&policies, path), Keyed::Exempt), "{path}");
    }
    let error = built(&["%2F", "%41"]).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("allow_in_paths \"%41\": there are `//`, `..`"), "{text}");
    assert_eq!((error.rows()[0].table(), error.rows()[0].field()), ("allow_in_paths", None));
    for wrong in ["allow_in_paths = '%2F'", "allow_in_paths = [1]"] {
        toml::from_str::<Rows>(wrong).unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slash_at_the_end_makes_no_difference() {
    let row = |name: &str, rest: &str| {
        format!("[[policy]]\nname = '{name}'\nlimit = 99\nperiod = '1h'\nmatch = {rest}\n")
    };
    let table = [
        row("login", "'/login'"),
        row("slash", "'/login/'"),
        row("user", "'/users/{id}'"),
        row("users", "'/users/{user}/'"),
        row("any", "{ path = '/LOGIN', ignore_case = true }"),
    ];
    let policies = policies(&table.concat());
    for (path, names) in [
        ("/login", &["login", "slash", "any"][..]),
        ("/login/", &["login", "slash", "any"]),
        ("/Login/", &["any"]),
        ("/users/7", &["user", "users"]),
        ("/users/7/", &["user", "users"]),
    ] {
        let _ = take(&policies, path, names).await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_paths_are_not_taken() {
    for (pattern, paths) in [
        ("/api/{*rest}", &["/", "/api", "/api/", "/apis/x", "/API/x", "/x/api/y"][..]),
        ("/users/{id}", &["/users", "/users/", "/users/7/x"]),
        ("/a:b", &["/a", "/a:c"]),
        ("/", &["/a", "/%61"]),
    ] {
        let policies = taking(&format!("'{pattern}'"));
        for path in paths {
            let taken = check(&policies, &request("GET", path, &[])).await;
            assert!(taken.is_none(), "{pattern} {path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_spellings_of_a_path_are_one_key() {
    for (path, spellings) in [
        ("/a/b", &["/a/%62", "/%61/b?x=1", "/a/b/", "/%61/%62/"][..]),
        ("/caf%C3%A9", &["/caf%c3%a9", "/caf\u{e9}"]),
        ("/x:y", &["/x%3Ay", "/x%3ay"]),
    ] {
        let policies = policies("[[policy]]\nname = 'a'\nlimit = 99\nperiod = '1h'\nkey = 'path'");
        let mut left = decide(&policies, &request("GET", path, &[])).await.remaining().unwrap();
        for spelling in spellings {
            left -= 1;
            let decision = decide(&policies, &request("GET", spelling, &[])).await;
            assert_eq!(decision.remaining(), Some(left), "{spelling}");
        }
        for spelling in spellings.iter().filter(|spelling| !spelling.contains('?')) {
            let peeked = policies.get("a").unwrap().peek(&[spelling]).await.unwrap();
            assert_eq!(peeked.remaining(), Some(left), "{spelling}");
        }
    }
    let policies = policies("[[policy]]\nname = 'a'\nlimit = 99\nperiod = '1h'\nkey = 'path'");
    for path in ["/a%20b", "/A/b", "/a/b/c", "/50%25off"] {
        let decision = decide(&policies, &request("GET", path, &[])).await;
        assert_eq!(decision.remaining(), Some(98), "{path}");
    }
    // No limit has such a key.
    let error = policies.get("a").unwrap().peek(&["//w/b"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
}

#[test]
fn a_pattern_that_no_path_can_have_is_an_error() {
    for pattern in
        ["/a//b", "/./a", "/a/..", "/a/%2e%2E/b", "//", "/a%2Fb", "/a;v=1", "/a%20", "/%2561"]
    {
        let table =
            format!("[[policy]]\nname = 'a'\nlimit = 1\nperiod = '1s'\nmatch = '{pattern}'");
        let error = Policies::builder().build(&rows(&table)).expect_err(pattern);
        assert_eq!(error.rows()[0].field(), Some("match"), "{error}");
    }
    for name in [".", ".."] {
        let table = format!("[[interface]]\nname = '{name}'\nrate = 5");
        let error = Policies::builder().build(&rows(&table)).expect_err(name);
        assert_eq!(error.rows()[0].field(), Some("name"), "{error}");
    }
}

/// A placeholder takes no empty rest, and the pair of patterns takes all.
#[tokio::test(start_paused = true)]
async fn a_rest_is_never_empty_and_a_pair_of_paths_takes_all() {
    let policies = policies(
        "[[policy]]\nname = 'rest'\nlimit = 99\nperiod = '1h'\nmatch = '/api/{*rest}'\n\
         [[policy]]\nname = 'all'\nlimit = 99\nperiod = '1h'\nmatch = ['/api', '/api/{*rest}']",
    );
    for (path, names) in [("/api", &["all"][..]), ("/api/", &["all"]), ("/api/x", &["rest", "all"])]
    {
        let _ = take(&policies, path, names).await;
    }
    assert!(check(&policies, &request("GET", "/apis", &[])).await.is_none());
    assert!(check(&taking("'/{*rest}'"), &request("GET", "/", &[])).await.is_none());
}

/// A row that is off exempts a path from no other row.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_off_leaves_a_path_to_a_broader_row() {
    let policies = policies(
        "[[policy]]\nname = 'api'\nlimit = 99\nperiod = '1h'\nmatch = '/api/{*rest}'\n\
         [[policy]]\nname = 'health'\nlimit = 99\nperiod = '1h'\nmatch = '/api/health'\n\
         enabled = false",
    );
    assert_eq!(decide(&policies, &request("GET", "/api/health", &[])).await.remaining(), Some(98));
}

/// Characters that other routers give a meaning, where a row writes them encoded or escaped.
#[tokio::test(start_paused = true)]
async fn an_encoded_character_of_a_pattern_is_itself() {
    for (pattern, paths) in [
        ("/a/%2A", &["/a/*", "/a/%2a"][..]),
        ("/a/%2a%2A", &["/a/**"]),
        ("/a/%3Aid", &["/a/:id", "/a/%3aid"]),
        ("/a/%3Cid%3E", &["/a/%3Cid%3E"]),
        ("/a/b:c", &["/a/b:c"]),
        ("/{{%2A}}", &["/%7B*%7D"]),
    ] {
        let policies = taking(&format!("'{pattern}'"));
        for path in paths {
            let taken = check(&policies, &request("GET", path, &[])).await;
            assert!(taken.is_some(), "{pattern} {path}");
        }
        assert!(check(&policies, &request("GET", "/a/x", &[])).await.is_none(), "{pattern}");
    }
    let policies = policies("[[interface]]\nname = ':a'\nrate = 5");
    assert!(check(&policies, &request("GET", "/:a/x", &[])).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_policy_takes_upper_and_lower_case_where_its_row_says_so() {
    let row = |rest: &str| {
        format!("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nkey = 'path'\n{rest}")
    };
    let policies = policies(&row("match = { path = '/Users/{Id}/caf\u{e9}', ignore_case = true }"));
    for (spelling, left) in
        ["/users/7/caf%C3%A9", "/USERS/7/caf\u{e9}", "/Users/7/CAF%c3%a9/"].iter().zip([8, 7, 6])
    {
        let decision = decide(&policies, &request("GET", spelling, &[])).await;
        assert_eq!(decision.remaining(), Some(left), "{spelling}");
    }
    let peeked = policies.get("a").unwrap().peek(&["/uSERS/7/caf\u{e9}/"]).await.unwrap();
    assert_eq!(peeked.remaining(), Some(6));
    let error = Policies::builder().build(&rows(&row("match = { ignore_case = true }")));
    assert_eq!(error.unwrap_err().rows()[0].field(), Some("match"));
}

/// Rows are found by the beginning of a path, and decide in their order.
#[tokio::test(start_paused = true)]
async fn every_row_that_takes_a_path_is_found() {
    let row = |name: &str, rest: &str| {
        format!("[[policy]]\nname = '{name}'\nlimit = 9\nperiod = '1h'\n{rest}\n")
    };
    let table = [
        row("id", "match = '/users/{id}'"),
        row("all", ""),
        row("any", "match = '/{*rest}'"),
        row("several", "match = { path = ['/users/7', '/users/{id}', '/x'] }"),
        row("one", "match = '/{first}/{second}'"),
        row("users", "match = '/users'"),
        row("inner", "match = '/users/{id}/orders/{order}'"),
        row("root", "match = '/'"),
    ];
    let policies = policies(&table.concat());
    for (path, names) in [
        ("/users/7", &["id", "all", "any", "several", "one"][..]),
        ("/users/8?x=/", &["id", "all", "any", "several", "one"]),
        ("/users", &["all", "any", "users"]),
        ("/users/7/orders/9", &["all", "any", "inner"]),
        ("/x", &["all", "any", "several"]),
        ("/x/y", &["all", "any", "one"]),
        ("/", &["all", "root"]),
        ("/%75sers/", &["all", "any", "users"]),
        ("*", &["all"]),
    ] {
        let _ = take(&policies, path, names).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_table_of_interfaces_limits_each_alone() {
    let table: String =
        (0..2_000).map(|number| format!("[[interface]]\nname = 's{number}'\nrate = 5\n")).collect();
    let policies = policies(&table);
    for path in ["/s0", "/s1999/x", "/s77/x/"] {
        let call = request("GET", path, &[]);
        assert_eq!(burst(&policies, &call, 10).await, (5, vec![200, 400], 3), "{path}");
    }
    assert!(check(&policies, &request("GET", "/s2000", &[])).await.is_none());
}

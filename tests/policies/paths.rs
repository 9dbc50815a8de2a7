//! No spelling of a path gets around the policies that take it.

use tower_sluice::key::{Head, Keyed};
use tower_sluice::limiter::SwitchMode;
use tower_sluice::policy::Policies;

use super::{burst, check, decide, policies, request, rows};

/// A policy that takes these patterns.
fn taking(patterns: &str) -> Policies {
    policies(&format!(
        "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nmatch = {{ path = {patterns} }}"
    ))
}

#[tokio::test(start_paused = true)]
async fn no_spelling_of_a_path_gets_around_a_policy() {
    for (pattern, paths) in [
        ("/api/{*rest}", &["/api/x", "/%61pi/x", "//api/x", "/x/../api/y", "/./api//x"][..]),
        // What a server sees that decodes a path before it splits it, and one that never does.
        ("/api/{*rest}", &["/api%2Fx", "/api%2f%2e/x", "/x%2F..%2fapi/y", "/api\\x", "/api%5cx"]),
        ("/api/{*rest}", &["/api/x/../../y", "/api%2F../y", "/api//../y"]),
        // nginx, and a server that takes out dots before it decodes them.
        ("/api/x", &["//aa\\api/%2F../api/x", "/api/%2e/../x", "/%2e%2e%2f%5ca\\../api/x"]),
        ("/a/b", &["/a/b", "/a//../b", "/a/./b", "/a/c/../b", "/a%2Fb", "/a/%62"]),
        ("/users/{id}", &["/users/7", "/users/a%2Fb", "/users//7", "/users/%2e"]),
        ("/v1/messages:send", &["/v1/messages:send", "/v1/messages%3Asend", "/v1/messages%3asend"]),
        ("/v1/messages%3Asend", &["/v1/messages:send", "/v1/messages%3asend"]),
        ("/a@b", &["/a@b", "/a%40b"]),
        ("/caf%c3%a9", &["/caf%C3%A9", "/caf%c3%a9", "/caf\u{e9}", "/c%61f%c3%A9"]),
        ("/caf%C3%A9", &["/caf%C3%A9", "/caf%c3%a9", "/caf\u{e9}"]),
        ("/caf\u{e9}", &["/caf%C3%A9", "/caf%c3%a9", "/caf\u{e9}"]),
        ("/a%2Fb", &["/a%2Fb", "/a%2fb", "/a/b"]),
        ("/{{id}}/{id}", &["/{id}/7", "/%7Bid%7d/7"]),
        ("/100%", &["/100%", "/100%25"]),
        ("/.well-known/{*rest}", &["/.well-known/x", "/%2Ewell-known/x", "/a/../.well-known/x"]),
        ("/", &["/", "//", "/.", "/a/..", "/%2F"]),
    ] {
        let policies = taking(&format!("'{pattern}'"));
        for path in paths {
            let taken = check(&policies, &request("GET", path, &[])).await;
            assert!(taken.is_some(), "{pattern} {path}");
        }
    }
}

// Case 168.
#[tokio::test(start_paused = true)]
async fn no_spelling_of_an_exact_path_gets_around_its_policy() {
    let policies = taking("'/login'");
    let mut escaped = Vec::new();
    for path in [
        "/login",
        "/login/",
        // Python's http.server.
        "/login/.",
        "/login/x/..",
        "/login%2f.",
        "/login//.",
        "//login",
        "/x/%2e%2e/login/",
        // Tomcat.
        "/login;a=b",
        "/;a=b/login",
        "/x/..;/login",
        "/x/%2e%2e;a/login;b",
        "/login/;a",
        "/login%3Ba=b",
        "/;%2f/login",
        // A reader of backslashes, and one that knows encoded ones.
        "/x\\..\\login",
        "/x%5c..%5Clogin/.",
        // A server that decodes what another one has decoded.
        "/%256cogin",
        "/x%252f..%252Flogin",
        "/%252e/login",
        "/login%3Fx",
        "/login%23",
        // A server that finds a host in it: Node's `new URL`, Python's `urlsplit`.
        "//x/login",
        "///x/login",
        "/\\x/login",
        "/%5cx:80/login/",
    ] {
        if check(&policies, &request("GET", path, &[])).await.is_none() {
            escaped.push(path);
        }
    }
    assert!(escaped.is_empty(), "{escaped:?}");
}

/// A row that writes the slash at the end, or the parameters, takes those requests alone.
#[tokio::test(start_paused = true)]
async fn paths_that_rows_tell_apart_are_taken_by_their_own() {
    let row = |name: &str, rest: &str| {
        format!("[[policy]]\nname = '{name}'\nlimit = 99\nperiod = '1h'\nmatch = {rest}\n")
    };
    let table = [
        row("login", "'/login'"),
        row("slash", "'/login/'"),
        row("a", "'/a'"),
        row("v1", "'/a;v=1'"),
        row("user", "'/users/{id}'"),
        row("users", "'/users/{user}/'"),
        row("order", "'/orders/{id}'"),
        row("get", "{ path = '/items' }"),
        row("post", "{ path = '/items/', method = 'POST' }"),
        row("read", "{ path = '/list', method = ['GET', 'HEAD'] }"),
        row("slash-read", "{ path = '/list/', method = ['head', 'get', 'GET'] }"),
        row("both", "{ path = ['/both', '/both/'] }"),
        row("one", "'/both/'"),
    ];
    let policies = policies(&table.concat());
    for (path, names) in [
        ("/login", &["login"][..]),
        ("/login/", &["slash"]),
        ("/%6cogin", &["login"]),
        ("/a", &["a"]),
        ("/a;v=1", &["v1"]),
        ("/a/", &["a"]),
        ("/a;v=2", &["a"]),
        ("/users/7", &["user"]),
        ("/users/7/", &["users"]),
        ("/orders/7", &["order"]),
        ("/orders/7/", &["order"]),
        // A GET of it may be one of the other.
        ("/items/", &["get"]),
        ("/list", &["read"]),
        ("/list/", &["slash-read"]),
        ("/both", &["both"]),
        ("/both/", &["both", "one"]),
        // These are read as both.
        ("/login/.", &["login", "slash"]),
        ("/login//", &["login", "slash"]),
        ("/a%3Bv=1", &["a", "v1"]),
        ("/x/..;/a;v=1", &["a", "v1"]),
        ("/users/7;x/", &["user", "users"]),
    ] {
        let decision = decide(&policies, &request("GET", path, &[])).await;
        let found: Vec<_> = decision.policies().map(|one| one.name().to_owned()).collect();
        assert_eq!(found, names, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_ignores_case_leaves_nothing_to_one_that_does_not() {
    let row = |name: &str, rest: &str| {
        format!("[[policy]]\nname = '{name}'\nlimit = 99\nperiod = '1h'\nmatch = {rest}\n")
    };
    let table = [
        row("any", "{ path = '/login', ignore_case = true }"),
        row("slash", "'/login/'"),
        row("exact", "'/logout'"),
        row("any-slash", "{ path = '/logout/', ignore_case = true }"),
    ];
    let policies = policies(&table.concat());
    for (path, names) in [
        ("/LOGIN", &["any"][..]),
        ("/LOGIN/", &["any"]),
        ("/login/", &["any", "slash"]),
        ("/logout", &["exact", "any-slash"]),
        ("/logout/", &["any-slash"]),
        ("/LOGOUT/", &["any-slash"]),
    ] {
        let decision = decide(&policies, &request("GET", path, &[])).await;
        let found: Vec<_> = decision.policies().map(|one| one.name().to_owned()).collect();
        assert_eq!(found, names, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_paths_are_not_taken() {
    for (pattern, paths) in [
        ("/api/{*rest}", &["/", "/api", "/apis/x", "/API/x", "/x/api/y", "/api%25252Fx"][..]),
        ("/users/{id}", &["/users", "/users/", "/users/7/x"]),
        ("/a:b", &["/a%25253Ab", "/a;b"]),
        ("/a;b", &["/a", "/a;c"]),
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
        ("/a/b", &["/a//b", "/a%2Fb", "/%61/b?x=1", "/c/../a/./b", "/a\\b"][..]),
        ("/a/b", &["/a/b/", "/a;x=1/b;y", "/a;x=2/b;y", "/a%252Fb", "/x/..;/a/b"]),
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
    // A caller can invent a part that only some servers remove.
    let long = format!("//w/{}%2e/b", "./".repeat(2_000));
    let invented = ["//w/b", "/x%3f/../b", "/y%2fx/../b", "/z\\x/../b", &long];
    for (path, left) in invented.into_iter().zip((0..99).rev()) {
        let decision = decide(&policies, &request("GET", path, &[])).await;
        assert_eq!(decision.remaining(), Some(left), "{path}");
    }
    let peeked = policies.get("a").unwrap().peek(&["?"]).await.unwrap();
    assert_eq!(peeked.remaining(), Some(94));
    for path in ["/a%20b", "/A/b", "/a/b/c", "/a%25252Fb", "/c%252525"] {
        let decision = decide(&policies, &request("GET", path, &[])).await;
        assert_eq!(decision.remaining(), Some(98), "{path}");
    }
}

#[test]
fn a_pattern_that_no_path_can_have_is_an_error() {
    for pattern in ["/a//b", "/./a", "/a/..", "/a/%2e%2E/b", "//", "/a%2F%2Fb"] {
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

#[tokio::test(start_paused = true)]
async fn a_path_that_is_read_differently_is_refused_where_the_program_says_so() {
    let table = "[[policy]]\nname = 'a'\nlimit = 99\nperiod = '1h'\n\
                 match = { path = ['/login', '/api/{*rest}'] }";
    let policies = Policies::builder().refuse_ambiguous_paths().build(&rows(table)).unwrap();
    let keyed = |path: &str| policies.charge(Head::from(&request("GET", path, &[])));
    for path in ["//login", "/login/.", "/login;a", "/x/..;/login", "/api%2Fx", "/login/../api/x"] {
        assert!(matches!(keyed(path), Keyed::Missing(_)), "{path}");
    }
    for path in ["/login", "/login/", "/%6cogin", "/api/x", "/api/x;a=b", "/api/http%3A%2F%2Fx//y"]
    {
        assert!(matches!(keyed(path), Keyed::Charge(_)), "{path}");
    }
    for path in ["/", "/x//y", "/x;a=b", "/x%2Fy/./z"] {
        assert!(matches!(keyed(path), Keyed::Exempt), "{path}");
    }
}

/// The sentence of the setting's documentation.
#[tokio::test(start_paused = true)]
async fn dots_that_lead_to_a_path_are_refused_and_those_that_lead_away_are_exempt() {
    let table = "[[policy]]\nname = 'a'\nlimit = 99\nperiod = '1h'\nmatch = '/login'";
    let policies = Policies::builder().refuse_ambiguous_paths().build(&rows(table)).unwrap();
    let keyed = |path: &str| policies.charge(Head::from(&request("GET", path, &[])));
    for path in ["/login/x/..", "//login"] {
        assert!(matches!(keyed(path), Keyed::Missing(_)), "{path}");
    }
    // Every server reads `/` in it, or the path as it stands.
    assert!(matches!(keyed("/login/.."), Keyed::Exempt));
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
        let decision = decide(&policies, &request("GET", path, &[])).await;
        let found: Vec<_> = decision.policies().map(|one| one.name().to_owned()).collect();
        assert_eq!(found, names, "{path}");
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
    let decision = decide(&policies, &request("GET", "/api/health", &[])).await;
    assert_eq!(decision.remaining(), Some(98));
}

/// Characters that other routers give a meaning, where a row writes them encoded or escaped.
#[tokio::test(start_paused = true)]
async fn an_encoded_character_of_a_pattern_is_itself() {
    for (pattern, paths) in [
        ("/a/%2A", &["/a/*", "/a/%2a"][..]),
        ("/a/%2a%2A", &["/a/**"]),
        ("/a/%3Aid", &["/a/:id", "/a/%3aid"]),
        ("/a/%3Cid%3E", &["/a/%3Cid%3E"]),
        ("/a%3Fb", &["/a%3Fb"]),
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

/// Each host in front of a path would be a limit of its own.
#[tokio::test(start_paused = true)]
async fn a_path_that_is_several_keys_is_refused_where_the_program_says_so() {
    let row = |key| format!("[[policy]]\nname = 'a'\nlimit = 99\nperiod = '1h'\nkey = {key}");
    let policies = |key| Policies::builder().refuse_ambiguous_paths().build(&rows(&row(key)));
    let by_path = policies("['global', 'path']").unwrap();
    let keyed = |path: &str| by_path.charge(Head::from(&request("GET", path, &[])));
    let long = format!("//x/{}%2e/login", "./".repeat(2_000));
    for path in [
        "//x/login",
        "///x/login",
        "/\\x/login",
        "/;a/x/login",
        "/login/a//../b",
        "/x%3f/../login",
        &long,
    ] {
        assert!(matches!(keyed(path), Keyed::Missing(_)), "{path}");
    }
    for path in ["/", "/login", "/login//x", "/login;a=b/", "/a%2Fb", "/x/../login", "/a%252Fb"] {
        assert!(matches!(keyed(path), Keyed::Charge(_)), "{path}");
    }
    let global = policies("'global'").unwrap();
    let keyed = global.charge(Head::from(&request("GET", "//x/login", &[])));
    assert!(matches!(keyed, Keyed::Charge(_)));
}

#[tokio::test(start_paused = true)]
async fn a_policy_takes_upper_and_lower_case_where_its_row_says_so() {
    let row = |rest: &str| {
        format!("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nkey = 'path'\n{rest}")
    };
    let policies = policies(&row("match = { path = '/Users/{Id}/caf\u{e9}', ignore_case = true }"));
    for (spelling, left) in ["/users/7/caf%C3%A9", "/USERS/7/caf\u{e9}", "/x/..;/Users/7/CAF%c3%a9"]
        .iter()
        .zip([8, 7, 6])
    {
        let decision = decide(&policies, &request("GET", spelling, &[])).await;
        assert_eq!(decision.remaining(), Some(left), "{spelling}");
    }
    let peeked = policies.get("a").unwrap().peek(&["/uSERS/7/caf\u{e9}/"]).await.unwrap();
    assert_eq!(peeked.remaining(), Some(6));
    let error = Policies::builder().build(&rows(&row("match = { ignore_case = true }")));
    assert_eq!(error.unwrap_err().rows()[0].field(), Some("match"));
}

/// Nobody can say which policies take it.
#[tokio::test(start_paused = true)]
async fn a_path_with_too_many_readings_is_refused() {
    let policies = taking("'/api/x'");
    let keyed = |path: &str| policies.charge(Head::from(&request("GET", path, &[])));
    for odd in [format!("/{}/api/x", "a/%2e%2e;/".repeat(6_000)), "/a%2f/..\\%5c/.%2e;//".repeat(9)]
    {
        assert!(matches!(keyed(&odd), Keyed::Missing(_)), "{} bytes", odd.len());
        policies.switch().set(SwitchMode::Shadow);
        let seen = check(&policies, &request("GET", &odd, &[])).await.unwrap().unwrap();
        assert!(seen.is_admitted() && matches!(seen.shadowed(), Some(Err(_))), "{seen:?}");
        policies.switch().set(SwitchMode::Off);
        assert!(matches!(keyed(&odd), Keyed::Exempt), "{} bytes", odd.len());
        policies.switch().set(SwitchMode::On);
        // A policy that takes every path needs no readings.
        let all = super::policies("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'");
        assert!(check(&all, &request("GET", &odd, &[])).await.is_some());
    }
    let plain = format!("/{}", "%20".repeat(3_000));
    assert!(check(&policies, &request("GET", &plain, &[])).await.is_none());
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
        ("/x/../users", &["all", "any", "users"]),
        ("*", &["all"]),
    ] {
        let decision = decide(&policies, &request("GET", path, &[])).await;
        let found: Vec<_> = decision.policies().map(|one| one.name().to_owned()).collect();
        assert_eq!(found, names, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_table_of_interfaces_limits_each_alone() {
    let table: String =
        (0..2_000).map(|number| format!("[[interface]]\nname = 's{number}'\nrate = 5\n")).collect();
    let policies = policies(&table);
    for path in ["/s0", "/s1999/x", "/./s77//x"] {
        let call = request("GET", path, &[]);
        assert_eq!(burst(&policies, &call, 10).await, (5, vec![200, 400], 3), "{path}");
    }
    assert!(check(&policies, &request("GET", "/s2000", &[])).await.is_none());
}

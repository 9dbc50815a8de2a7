//! Keys of cookies, of the query, of networks and of the program; and which requests a row takes by
//! the query, the caller's network and the gRPC service.

use std::net::IpAddr;

use tower_sluice::key::{ClientIp, PeerAddr};
use tower_sluice_policies::PoliciesBuilder;

use super::*;

#[derive(Clone)]
struct User(&'static str);

fn builder() -> PoliciesBuilder {
    Policies::builder()
        .client_ip(ClientIp::new())
        .key("user", |head| Some(head.extensions().get::<User>()?.0.to_owned()))
}

fn of_key(key: &str) -> Policies {
    let row = format!("{{ name = 'p', limit = 9, period = '1h', key = {key} }}");
    builder().build(&rows(&row)).expect("a table")
}

fn from(address: &str) -> Request<()> {
    let mut request = request("GET", "/", &[]);
    request
        .extensions_mut()
        .insert(PeerAddr((address.parse::<IpAddr>().expect("an address"), 1).into()));
    request
}

/// Returns the refusal of a request without a key, and true if it is invalid.
fn missing(policies: &Policies, request: &Request<()>) -> (String, bool) {
    match policies.charge(Head::from(request)) {
        Keyed::Missing(why) => (why.to_string(), false),
        Keyed::Invalid(why) => (why.to_string(), true),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cookie_a_parameter_and_the_program_are_keys_that_no_store_shows() {
    let mut of_user = request("GET", "/", &[]);
    of_user.extensions_mut().insert(User("secret"));
    for (key, call, part) in [
        ("'cookie:session'", request("GET", "/", &["cookie: a=b; session=secret"]), "secret"),
        ("'query:token'", request("GET", "/x?a=b&token=sec%72et", &[]), "secret"),
        ("'user'", of_user, "secret"),
    ] {
        let policies = of_key(key);
        let charge = charge(&policies, &call);
        assert!(!charge.key().contains("secret"), "{key}: {}", charge.key());
        assert!(decide(&policies, &call).await.is_admitted());
        assert_eq!(left(&policies, "p", part).await, 8, "{key}");
        assert_eq!(left(&policies, "p", "other").await, 9, "{key}");
    }
}

#[test]
fn a_request_without_the_value_or_with_two_of_it_has_no_key() {
    let session = of_key("'cookie:session'");
    let (why, is_invalid) = missing(&session, &request("GET", "/", &["cookie: a=b"]));
    assert_eq!((&*why, is_invalid), ("request has no cookie `session`", false));
    let twice = request("GET", "/", &["cookie: session=a", "cookie: session=a"]);
    let (why, is_invalid) = missing(&session, &twice);
    assert_eq!((&*why, is_invalid), ("request has more than one cookie `session`", true));
    let token = of_key("'query:token'");
    assert_eq!(
        missing(&token, &request("GET", "/?token=", &[])).0,
        "request has no parameter `token`"
    );
    assert!(missing(&token, &request("GET", "/?token=a&t%6Fken=b", &[])).1);
    assert_eq!(
        missing(&of_key("'user'"), &request("GET", "/", &[])).0,
        "request has no key `user`"
    );
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_network_share_a_key() {
    for (key, same, other) in [
        ("'client_ip/24'", ["192.0.2.1", "192.0.2.200"], "192.0.3.1"),
        // The other family is counted as `client_ip` does.
        ("'client_ip/24'", ["2001:db8::1", "2001:db8::2"], "2001:db8:0:1::1"),
        ("'client_ip/56'", ["2001:db8::1", "2001:db8:0:ff::2"], "2001:db8:0:100::1"),
        ("'client_ip/56'", ["192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.2"),
        ("'client_ip/16/48'", ["192.0.2.1", "192.0.9.9"], "192.1.2.1"),
        ("'client_ip/16/48'", ["2001:db8::1", "2001:db8:0:ffff::2"], "2001:db8:1::1"),
        ("'client_ip/32/128'", ["2001:db8::1", "2001:db8::1"], "2001:db8::2"),
        // Addresses of IPv4 behind a translator are callers of their own.
        ("'client_ip/56'", ["64:ff9b::c000:201", "64:ff9b::c000:201"], "64:ff9b::c000:202"),
        ("'client_ip/56'", ["64:ff9b:1::c000:201", "64:ff9b:1::c000:201"], "64:ff9b:1::c000:202"),
    ] {
        let policies = of_key(key);
        for address in same {
            assert!(decide(&policies, &from(address)).await.is_admitted());
        }
        assert_eq!(left(&policies, "p", same[0]).await, 7, "{key} {same:?}");
        assert_eq!(left(&policies, "p", other).await, 9, "{key} {other}");
    }
}

#[test]
fn a_key_that_nothing_has_names_those_that_are_there() {
    let error = |key: &str| {
        let row = format!("{{ name = 'p', limit = 9, period = '1h', key = {key} }}");
        builder().build(&rows(&row)).unwrap_err().to_string()
    };
    let unknown = error("'tenant'");
    assert!(unknown.contains("no key is called \"tenant\"; there are `client_ip`"), "{unknown}");
    assert!(unknown.ends_with("`global`, `user`"), "{unknown}");
    for key in ["client_ip/0", "client_ip/129", "client_ip/33/64", "client_ip/24/", "client_ip/x"] {
        let error = error(&format!("'{key}'"));
        assert!(error.contains(&format!("\"{key}\" has no valid prefix")), "{error}");
    }
    assert!(error("'cookie: '").contains("has no name"));
    assert!(error("'headr:x'").contains("no key is called"));
    // A serialized policy names the same keys.
    for key in ["client_ip/24", "client_ip/56", "client_ip/24/56", "cookie:a", "query:b", "user"] {
        let policies = of_key(&format!("'{key}'"));
        let row = tower_sluice_policies::serde_json::to_value(policies.policies()[0].policy());
        assert_eq!(row.unwrap()["key"], key);
    }
}

fn matching(pattern: &str) -> Policies {
    let row = format!("{{ name = 'p', limit = 9, period = '1h', match = {pattern} }}");
    builder().build(&rows(&row)).expect("a table")
}

#[tokio::test(start_paused = true)]
async fn a_row_takes_requests_by_their_query() {
    for (pattern, taken, free) in [
        ("{ query = 'debug' }", ["/?debug", "/?a=1&debug=0"], ["/", "/?Debug"]),
        ("{ query = ['a', 'b'] }", ["/?a&b", "/?b=1&a=2"], ["/?a", "/?b"]),
        (
            "{ query = { page = 'a b' } }",
            ["/?page=a+b", "/?page=x&page=a%20b"],
            ["/?page", "/?page=a"],
        ),
    ] {
        let policies = matching(pattern);
        for uri in taken {
            assert!(check(&policies, &request("GET", uri, &[])).await.is_some(), "{pattern} {uri}");
        }
        for uri in free {
            assert!(check(&policies, &request("GET", uri, &[])).await.is_none(), "{pattern} {uri}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_takes_requests_by_their_network() {
    let inside = matching("{ network = ['10.0.0.0/8', '2001:db8::/32', '192.0.2.7'] }");
    let outside = matching("{ not_network = ['10.0.0.0/8', '2001:db8::/32', '192.0.2.7'] }");
    let some = matching("{ network = '10.0.0.0/8', not_network = '10.1.0.0/16' }");
    for (address, is_inside, is_some) in [
        ("10.1.2.3", true, false),
        ("10.2.2.3", true, true),
        ("::ffff:10.2.2.3", true, true),
        ("2001:db8:1::1", true, false),
        ("2001:db9::1", false, false),
        ("192.0.2.7", true, false),
        ("192.0.2.8", false, false),
    ] {
        let call = from(address);
        assert_eq!(check(&inside, &call).await.is_some(), is_inside, "{address}");
        assert_eq!(check(&outside, &call).await.is_some(), !is_inside, "{address}");
        assert_eq!(check(&some, &call).await.is_some(), is_some, "{address}");
    }
    // Without an address it is unknown if a row takes the request: it is not free.
    let (why, _) = missing(&outside, &request("GET", "/", &[]));
    assert!(why.contains("no peer address"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_row_takes_the_methods_of_a_grpc_service() {
    let policies = matching("{ grpc_service = ['shop.v1.Orders', 'Health'] }");
    for (path, is_taken) in [
        ("/shop.v1.Orders/Place", true),
        ("/shop%2Ev1.Orders/Place", true),
        ("/Health/Check", true),
        ("/shop.v1.orders/Place", false),
        ("/shop.v1.Orders", false),
        ("/shop.v1.Orders/a/b", false),
        ("/api/shop.v1.Orders/Place", false),
    ] {
        let call = request("POST", path, &[]);
        assert_eq!(check(&policies, &call).await.is_some(), is_taken, "{path}");
    }
    let one = matching("{ grpc_service = 'shop.v1.Orders', path = '/{service}/Place' }");
    assert!(check(&one, &request("POST", "/shop.v1.Orders/Place", &[])).await.is_some());
    assert!(check(&one, &request("POST", "/shop.v1.Orders/List", &[])).await.is_none());
    assert!(check(&one, &request("POST", "/shop.v1.Users/Place", &[])).await.is_none());
}

#[test]
fn a_wrong_pattern_says_why() {
    for (pattern, why) in [
        ("{ network = '10.0.0.0/33' }", "is not a network"),
        ("{ not_network = ['localhost'] }", "is not a network"),
        // It would mean `::/8`.
        ("{ network = '::ffff:10.0.0.0/8' }", "is not a network"),
        ("{ network = [] }", "the list is empty"),
        ("{ grpc_service = 'shop/Orders' }", "is not a gRPC service"),
        ("{ grpc_service = '' }", "is not a gRPC service"),
        ("{ query = {} }", "a table of parameters is empty"),
    ] {
        let row = format!("{{ name = 'p', limit = 9, period = '1h', match = {pattern} }}");
        let error = builder().build(&rows(&row)).unwrap_err().to_string();
        assert!(error.contains("match: ") && error.contains(why), "{pattern}: {error}");
    }
}

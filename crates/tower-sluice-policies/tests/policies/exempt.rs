//! Rows that exempt requests from all others, and the example of a request that no row takes.

use tower_sluice::key::PeerAddr;

use super::*;

fn policies_of_json(text: &str) -> Policies {
    Policies::builder().build(&serde_json::from_str(text).unwrap()).expect("a table")
}

fn from(address: &str, path: &str) -> Request<()> {
    let mut request = request("GET", path, &[]);
    request.extensions_mut().insert(PeerAddr(address.parse().expect("an address")));
    request
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_is_taken_by_no_other_row() {
    let policies = policies(
        "{ name = 'all', limit = 1, period = '1h' },
         { name = 'shadow', limit = 1, period = '1h', shadow = true },
         { name = 'health', exempt = true, match = '/health' },
         { name = 'office', exempt = 1, match = { network = '192.0.2.0/24' } },
         { name = 'later', exempt = true, enabled = false, match = '/later' },
         { name = 'never', exempt = false, limit = 1, period = '1h', match = '/never' }",
    );
    let shown: Vec<_> =
        policies.exemptions().iter().map(|row| serde_json::to_string(&**row).unwrap()).collect();
    assert_eq!(
        shown,
        [
            r#"{"name":"health","exempt":true,"match":{"path":["/health"]},"enabled":true}"#,
            r#"{"name":"office","exempt":true,"match":{"network":["192.0.2.0/24"]},"enabled":true}"#,
            r#"{"name":"later","exempt":true,"match":{"path":["/later"]},"enabled":false}"#,
        ]
    );
    let again = format!("{{\"policy\": [{}], \"allow_empty\": true}}", shown.join(","));
    policies_of_json(&again);
    for call in [
        from("10.0.0.1:1", "/health"),
        from("192.0.2.9:1", "/any"),
        from("10.0.0.1:1", "/%68ealth/"),
    ] {
        assert!(check(&policies, &call).await.is_none(), "{call:?}");
    }
    for call in
        [from("10.0.0.1:1", "/any"), from("10.0.0.1:1", "/later"), from("10.0.0.1:1", "/never")]
    {
        assert!(check(&policies, &call).await.is_some(), "{call:?}");
    }
    // Without an address it is unknown if the office sent it: it is limited.
    assert!(check(&policies, &request("GET", "/any", &[])).await.is_some());
    // Servers read this path in several ways: it is refused, not exempt.
    let keyed = policies.charge(Head::from(&from("10.0.0.1:1", "/health/..")));
    assert!(matches!(keyed, Keyed::Invalid(_) | Keyed::Charge(_)), "{keyed:?}");
    // Exempt rows are no policies.
    assert_eq!(policies.policies().len(), 3);
    assert!(policies.get("health").is_none());
}

/// One of the two may be for a server, and the other one for us. So a limit takes the request.
#[tokio::test(start_paused = true)]
async fn a_request_of_which_only_a_part_is_exempt_is_limited() {
    let policies = policies(
        "{ name = 'all', limit = 100, period = '1h' },
         { name = 'host', exempt = true, match = { header = { host = 'internal.example' } } },
         { name = 'probe', exempt = true, match = { header = { x-kind = 'probe' } } },
         { name = 'query', exempt = true, match = { query = { probe = '1' } } },
         { name = 'mapped', exempt = true, match = { network = '::ffff:10.0.0.0/104' } }",
    );
    let (inside, outside) = ("http://internal.example/", "http://shop.example/");
    let host = ["host: internal.example"];
    let exempt = [
        request("GET", "/", &host),
        request("GET", inside, &host),
        request("GET", "/", &["x-kind: probe"]),
        request("GET", "/?probe=1&a=2", &[]),
        from("10.1.2.3:1", "/"),
    ];
    for call in exempt {
        assert!(check(&policies, &call).await.is_none(), "{call:?}");
    }
    let limited = [
        request("GET", outside, &host),
        request("GET", inside, &["host: shop.example"]),
        request("GET", "/", &["x-kind: probe", "x-kind: real"]),
        request("GET", "/?probe=1&probe=0", &[]),
        from("11.1.2.3:1", "/"),
    ];
    for call in limited {
        assert!(check(&policies, &call).await.is_some(), "{call:?}");
    }
}

#[test]
fn an_exempt_row_has_a_name_and_a_match_and_nothing_else() {
    for (fields, field, why) in [
        ("match = '/a', limit = 1", "limit", "unknown field"),
        ("match = '/a', key = 'host'", "key", "unknown field"),
        ("match = '/a', shadow = true", "shadow", "unknown field"),
        ("enabled = true", "match", "no request would be limited"),
        ("match = {}", "match", "no request would be limited"),
        ("match = 'a'", "match", "does not begin with a slash"),
    ] {
        let row = format!("{{ name = 'p', exempt = true, {fields} }}");
        let error = Policies::builder().build(&rows(&row)).unwrap_err();
        let [row] = error.rows() else { panic!("{fields}: {error}") };
        assert_eq!(row.field(), Some(field), "{fields}: {error}");
        assert!(row.message().contains(why), "{fields}: {error}");
    }
    // As `match: { path: , method: OPTIONS }` of YAML.
    let json = r#"{"policy": [{"name": "p", "exempt": true, "match": {"path": null, "method": "GET"}}], "allow_empty": true}"#;
    let error = Policies::builder().build(&serde_json::from_str(json).unwrap()).unwrap_err();
    assert!(error.to_string().contains("a part of it is empty"), "{error}");
    let twice =
        "{ name = 'p', exempt = true, match = '/a' }, { name = 'p', limit = 1, period = '1s' }";
    let error = Policies::builder().build(&rows(twice)).unwrap_err().to_string();
    assert!(error.contains("another row has this name"), "{error}");
    // A table that only exempts limits nothing.
    let alone = Policies::builder().build(&rows("{ name = 'p', exempt = true, match = '/a' }"));
    assert!(alone.unwrap_err().to_string().contains("there is no policy"));
}

#[tokio::test(start_paused = true)]
async fn one_request_a_minute_that_no_row_takes_is_shown() {
    let seen: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let shown = Arc::clone(&seen);
    let policies = Policies::builder()
        .on_unmatched(move |path, requests| shown.lock().unwrap().push((path.to_owned(), requests)))
        .build(&rows(
            "{ name = 'a', limit = 9, period = '1h', match = '/a' },
             { name = 'health', exempt = true, match = '/health' }",
        ))
        .unwrap();
    let ask = |path: &str| drop(policies.charge(Head::from(&request("GET", path, &[]))));
    ["/a", "/health", "/b?token=secret", "/c", "/d"].into_iter().for_each(ask);
    tokio::time::advance(Duration::from_secs(59)).await;
    ask("/e");
    tokio::time::advance(Duration::from_secs(1)).await;
    ask(&format!("/{}", "x".repeat(1_000)));
    // A reload begins no new minute.
    policies.load(&rows("{ name = 'a', limit = 9, period = '1h', match = '/a' }")).unwrap();
    ask("/health");
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], (String::from("/b"), 1));
    assert_eq!((seen[1].0.len(), seen[1].1, seen.len()), (200, 4, 2));
}

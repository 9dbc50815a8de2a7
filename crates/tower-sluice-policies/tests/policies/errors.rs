//! Every error names its row and its field, and a bad table changes nothing.

use tower_sluice_policies::TableError;

use super::*;

/// Returns the error of a table whose second row has these fields.
fn wrong(fields: &str) -> TableError {
    let table =
        format!("[[policy]]\nname = 'good'\nlimit = 1\nperiod = '1s'\n\n[[policy]]\n{fields}");
    Policies::builder().build(&rows(&table)).expect_err(fields)
}

const BASE: &str = "name = 'bad'\nlimit = 5\nperiod = '1s'\n";

/// Fields with an error beside a name, a limit and a period: that of the error, and rows between
/// bars.
const WRONG: &[(&str, &str)] = &[
    ("limitt", "limitt = 5"),
    ("algorithm", "algorithm = 'bucket'|algorithm = 7"),
    (
        "burst",
        "algorithm = 'fixed_window'; burst = 5|algorithm = 'sliding_log'; burst = 5|\
         algorithm = 'sliding_window'; burst = 9|algorithm = 'sliding_counter'; burst = 5|\
         algorithm = 'smooth_warming_up'; burst = 9|burst = 0|burst = -1|burst = 'many'",
    ),
    (
        "cells",
        "cells = 5|algorithm = 'sliding_window'; cells = 0|\
         algorithm = 'sliding_window'; cells = 61",
    ),
    ("warm_up", "algorithm = 'smooth_warming_up'; warm_up = '0s'"),
    ("cold_factor", "algorithm = 'smooth_warming_up'; cold_factor = 0.5"),
    (
        "max_burst",
        "algorithm = 'smooth_bursty'; burst = 5; max_burst = '1s'|\
         algorithm = 'smooth_bursty'; max_burst = '1ms'; wait_for_own_cost = true",
    ),
    ("max_wait", "max_wait = 500|max_wait = 'soon'"),
    ("cache_ratio", "max_wait = '1s'; cache_ratio = 0.5|cache_ratio = -0.5|cache_ratio = 'half'"),
    ("horizon", "horizon = 5"),
    ("max_debt", "algorithm = 'fixed_window'; max_debt = '60s'"),
    (
        "max_hold",
        "algorithm = 'budget'; max_wait = '2s'; max_hold = '1s'|max_hold = '60s'|\
         algorithm = 'budget'; max_hold = '0s'",
    ),
    (
        "key",
        "key = 'ip'|key = 'header:'|key = 'header:host'|key = 'header:Cookie'|key = 'header:x y'|key = []|key = ['client_ip', 'planet']",
    ),
    (
        "match",
        "match = { path = 'api' }|match = { path = '/{a}{b}' }|match = { paths = '/api' }|\
         match = { method = 'G T' }|match = { method = ['GET', 'GTE'] }|match = []|\
         match = ['/a', 7]|match = [{ path = '/a' }]|match = ['/a', ['/b']]|\
         match = ['/a', 'GET', 'x-a', 'name', true]|match = { header = 'x y' }|match = 7",
    ),
    // The last of them never fit, whatever was taken before.
    (
        "cost",
        "cost = 0|cost = -1|cost = 1.5|cost = 'content_length'|cost = 6|cost = 9; burst = 8|\
         cost = 6; algorithm = 'fixed_window'; max_wait = '1h'|\
         cost = 6; algorithm = 'sliding_log'|cost = 6; algorithm = 'sliding_window'|\
         cost = 6; algorithm = 'sliding_counter'|cost = 9007199254740993|\
         cost = 9007199254740993; algorithm = 'smooth_bursty'|\
         cost = 9; algorithm = 'smooth_bursty'; wait_for_own_cost = true|\
         cost = 1; algorithm = 'smooth_warming_up'; wait_for_own_cost = true",
    ),
    (
        "on_error",
        "on_error = 'open'|on_error = { local = 0 }|on_error = { local = 'two' }|\
         cost = 3; on_error = { local = 2 }|on_error = { share = 2 }",
    ),
    ("enabled", "enabled = 'yes'"),
    ("shadow", "shadow = 2"),
];

#[cfg(feature = "redisson")]
const WRONG_FOR_JAVA: &[(&str, &str)] = &[
    ("burst", "burst = 9"),
    ("cost", "cost = 6"),
    ("rate_type", "rate_type = 'all'"),
    ("keep_alive", "keep_alive = '1ms'|keep_alive = '1h 1us'"),
];

#[test]
fn every_error_names_its_row_and_its_field() {
    let check = |base: &str, (field, all): (&str, &str)| {
        for fields in all.split('|') {
            let error = wrong(&format!("{base}{}", fields.replace("; ", "\n")));
            let [row] = error.rows() else { panic!("{fields}: {error}") };
            let place = (row.table(), row.row(), row.field());
            assert_eq!(place, ("policy", "bad", Some(field)), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("policy \"bad\": {field}: ")), "{text}");
            assert!(!row.message().is_empty() && !text.contains('\n'), "{text}");
        }
    };
    WRONG.iter().for_each(|one| check(BASE, *one));
    #[cfg(feature = "redisson")]
    WRONG_FOR_JAVA.iter().for_each(|one| check(&format!("{BASE}algorithm = 'redisson'\n"), *one));
    for one in [
        ("limit", "limit = '5'; period = '1s'|limit = 5.5; period = '1s'|period = '1s'"),
        ("limit", "limit = 20000; period = '1s'; algorithm = 'sliding_log'"),
        (
            "limit",
            "limit = 9007199254740993; period = '1s'|limit = 1125899906842623; period = '1day'",
        ),
        ("limit", "limit = 99999; period = '30days'; algorithm = 'sliding_counter'"),
        ("period", "limit = 5|limit = 5; period = '0s'|limit = 5; period = '100years'"),
        ("period", "limit = 5; period = 1"),
        (
            "burst",
            "limit = 5; period = '1s'; algorithm = 'smooth_bursty'; burst = 900000000000000|\
             limit = 1; period = '1day'; burst = 200000|\
             limit = 1; period = '1day'; burst = 200000; algorithm = 'budget'",
        ),
        (
            "max_burst",
            "limit = 1000003; period = '1s'; algorithm = 'smooth_bursty'; max_burst = '3years'",
        ),
        #[cfg(feature = "redisson")]
        ("limit", "limit = 0; period = '1s'; algorithm = 'redisson'"),
        #[cfg(feature = "redisson")]
        ("period", "limit = 5; period = '1500us'; algorithm = 'redisson'"),
    ] {
        check("name = 'bad'\n", one);
    }
}

#[test]
fn a_row_without_a_name_has_a_number_and_names_are_not_shared() {
    let error = wrong("limit = 5\nperiod = '1s'");
    assert_eq!(error.to_string(), "policy 2: name: it is missing");
    let error = wrong("name = 'good'\nlimit = 5\nperiod = '1s'");
    assert_eq!(error.to_string(), "policy \"good\": name: another row has this name");
    for name in ["", "a b", "a\"b", "\u{e4}", &"x".repeat(65)] {
        let error = wrong(&format!("name = {name:?}\nlimit = 5\nperiod = '1s'"));
        assert_eq!(error.rows()[0].field(), Some("name"), "{name}");
    }
    let both =
        "[[policy]]\nname = 'a'\nlimit = 1\nperiod = '1s'\n[[interface]]\nname = 'a'\nrate = 5";
    let error = Policies::builder().build(&rows(both)).unwrap_err();
    assert_eq!(error.to_string(), "interface \"a\": name: another row has this name");
}

#[test]
fn a_cost_that_never_fits_names_the_field_that_is_too_small() {
    let pace = "cost = 9\nalgorithm = 'smooth_bursty'\nwait_for_own_cost = true\n";
    let waits = "a request of this cost waits at least 800ms: write a smaller cost, or a longer";
    for (fields, message) in [
        (
            String::from("cost = 6"),
            String::from(
                "no request of this cost is ever admitted: write a smaller cost, or a larger limit \
                 or burst",
            ),
        ),
        (pace.to_owned(), format!("{waits} max_wait")),
        (format!("{pace}max_wait = '700ms'"), format!("{waits} max_wait")),
        (format!("{pace}max_wait = '10s'\nhorizon = '700ms'"), format!("{waits} horizon")),
    ] {
        let error = wrong(&format!("{BASE}{fields}"));
        assert_eq!((error.rows()[0].field(), error.rows()[0].message()), (Some("cost"), &*message));
    }
}

#[test]
fn an_error_of_match_says_what_to_write() {
    let any = "a path, a list of paths, or a table of path, method, header, query, grpc_service, \
        network, not_network, name and ignore_case";
    let case = "ignore_case needs a path: write one, or leave ignore_case out";
    let method = "\"gte\" is not a method that IANA lists; for one of your own match by `name`, or \
                  leave `method` out";
    for (pattern, message) in [
        ("[7]", any),
        ("['/a', 'GET', 'x-a', 'name', true]", any),
        ("['/a', { method = 'GET' }]", any),
        ("{ ignore_case = true }", case),
        ("{ method = 'gte' }", method),
        (
            "{ header = { host = ':80' } }",
            "\":80\" is not a host; write one name, an international one as `xn--..`",
        ),
        (
            "{ header = { host = '*.shop.example' } }",
            "\"*.shop.example\" is not a host; write one name, an international one as `xn--..`",
        ),
        (
            "{ header = { host = 'https://a.example' } }",
            "\"https://a.example\" is not a host; write one name, an international one as `xn--..`",
        ),
        (
            "{ header = { host = 'ä.example' } }",
            "\"ä.example\" is not a host; write one name, an international one as `xn--..`",
        ),
    ] {
        let error = wrong(&format!("{BASE}match = {pattern}"));
        assert_eq!((error.rows()[0].field(), error.rows()[0].message()), (Some("match"), message));
    }
}

/// As plain text it would take no request.
#[test]
fn a_placeholder_of_another_router_is_an_error_that_says_what_to_write() {
    let star = "a `*` outside of braces is not a wildcard; write";
    let start = |written, meant| {
        format!("a segment that begins with `{written}` is plain text; write `{{{meant}}}`")
    };
    let brace = |inside| {
        format!(
            "`{{{inside}}}` is not a placeholder; write `{{name}}` for a segment, or `{{*name}}` for all that follows"
        )
    };
    let end = |written| format!("a path ends before the `{written}`");
    for (path, why) in [
        ("/api/*", format!("{star} `/api/{{*rest}}`; `%2A` is the character itself")),
        ("/api/**", format!("{star} `/api/{{*rest}}`; `%2A` is the character itself")),
        ("/api/*rest", format!("{star} `/api/{{*rest}}`; `%2A` is the character itself")),
        ("/*", format!("{star} `/{{*rest}}`; `%2A` is the character itself")),
        (
            "/{{a}}/{id}/*",
            format!("{star} `/{{{{a}}}}/{{id}}/{{*rest}}`; `%2A` is the character itself"),
        ),
        ("/a/*/b", format!("{star} `{{name}}` for a segment; `%2A` is the character itself")),
        ("/a/x*", format!("{star} `{{name}}` for a segment; `%2A` is the character itself")),
        ("/api/.*", format!("{star} `{{name}}` for a segment; `%2A` is the character itself")),
        ("/a/:id", start(':', "id") + "; `%3A` is the character itself"),
        ("/:user_id/b", start(':', "user_id") + "; `%3A` is the character itself"),
        ("/a/:", start(':', "name") + "; `%3A` is the character itself"),
        ("/a/<id>", start('<', "id") + "; `%3C` is the character itself"),
        ("/a/[id]", start('[', "id") + "; `%5B` is the character itself"),
        ("/a?b={c}", end('?')),
        ("/a#b", end('#')),
        ("/a/{rest...}", brace("rest...")),
        ("/a/{**rest}", brace("**rest")),
        ("/a/{rest:path}", brace("rest:path")),
        ("/a/{id?}", brace("id?")),
        ("/a/{}", brace("")),
        ("/a/{*}", brace("*")),
    ] {
        let error = wrong(&format!("{BASE}match = '{path}'"));
        let message = format!("the path {path:?}: {why}");
        assert_eq!(
            (error.rows()[0].field(), error.rows()[0].message()),
            (Some("match"), &*message)
        );
    }
}

#[test]
fn an_allow_empty_of_a_row_says_where_it_stands() {
    for table in
        ["[[policy]]\nname = 'a'\nlimit = 5\nperiod = '1s'", "[[interface]]\nname = 'a'\nrate = 5"]
    {
        let error = Policies::builder().build(&rows(&format!("{table}\nallow_empty = true")));
        let message = "no such field; it belongs at the top, before the first `[[policy]]`";
        let error = error.expect_err(table);
        assert_eq!(
            (error.rows()[0].field(), error.rows()[0].message()),
            (Some("allow_empty"), message)
        );
    }
}

/// As `?` in a main function prints it.
#[test]
fn an_error_of_a_table_prints_its_text_for_debug_too() {
    let empty = Policies::builder().build(&Rows::default()).unwrap_err();
    for error in [empty, wrong(&format!("{BASE}limitt = 5"))] {
        assert_eq!(format!("{error:?}"), error.to_string());
        let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
        assert_eq!(format!("{boxed:?}"), boxed.to_string());
    }
}

/// A cost that fits, or that a row lets wait. And a quota whose product the algorithm of the row
/// does not need.
#[test]
fn a_row_that_its_algorithm_can_follow_is_no_error() {
    let base = "limit = 5\nperiod = '1s'\n";
    for (quota, fields) in [
        (base, "cost = 5"),
        (base, "cost = 8\nburst = 8"),
        (base, "cost = 5\nalgorithm = 'sliding_counter'"),
        (base, "cost = 9\nalgorithm = 'smooth_bursty'"),
        (base, "cost = 9\nalgorithm = 'smooth_bursty'\nwait_for_own_cost = true\nmax_wait = '1s'"),
        (
            base,
            "cost = 9\nalgorithm = 'smooth_bursty'\nwait_for_own_cost = true\nmax_wait = '1s'\nhorizon = '1s'",
        ),
        (base, "cost = 9\nalgorithm = 'smooth_warming_up'"),
        (
            base,
            "cost = 9\nalgorithm = 'smooth_warming_up'\nwait_for_own_cost = true\nmax_wait = '10s'",
        ),
        (base, "cost = 9\nalgorithm = 'smooth_bursty'\nstart_empty = true"),
        (
            "limit = 3\nperiod = '1s'\n",
            "algorithm = 'smooth_bursty'\nwait_for_own_cost = true\nburst = 1",
        ),
        ("limit = 99999\nperiod = '30days'\n", "algorithm = 'fixed_window'"),
        ("limit = 99999\nperiod = '30days'\n", "algorithm = 'sliding_window'"),
        ("limit = 999983\nperiod = '1day'\n", "burst = 1"),
        ("limit = 999983\nperiod = '1day'\n", "burst = 1\nalgorithm = 'budget'"),
    ] {
        let built = Policies::builder()
            .build(&rows(&format!("[[policy]]\nname = 'good'\n{quota}{fields}")));
        assert!(built.is_ok(), "{fields}: {built:?}");
    }
}

/// A client that names its host could use up another policy, which has the name of its limiter.
#[cfg(feature = "redisson")]
#[test]
fn no_key_of_a_redisson_policy_is_the_limiter_of_another() {
    let row = |name: &str, key: &str, algorithm: &str| {
        format!(
            "[[policy]]\nname = '{name}'\nlimit = 5\nperiod = '1s'\nkey = '{key}'\nalgorithm = '{algorithm}'\n"
        )
    };
    for (first, second, is_wrong) in [
        (row("api", "host", "redisson"), row("api:v1", "global", "redisson"), true),
        (row("api", "host", "redisson"), row("api:v1", "path", "redisson"), true),
        (row("api", "global", "redisson"), row("api:v1", "global", "redisson"), false),
        (row("api", "host", "redisson"), row("api:v1", "global", "token_bucket"), false),
        (row("api", "host", "redisson"), row("api-v1", "global", "redisson"), false),
    ] {
        for table in [format!("{first}{second}"), format!("{second}{first}")] {
            let built = Policies::builder().build(&rows(&table));
            assert_eq!(built.is_err(), is_wrong, "{table}");
            if let Err(error) = built {
                let text =
                    r#"policy "api:v1": name: a key of the policy "api" may have this limiter"#;
                assert_eq!(error.to_string(), text);
            }
        }
    }
}

#[test]
fn all_errors_of_a_table_are_told() {
    let table = "
        policy = [{ name = 'a', limit = 2000000000000000, period = '1s', cost = 0, kee = 'path' }]
        interface = [{ name = 'b', rate = 2000000000000000, cache = -1, status = 2, limit = 5 }]
    ";
    let error = Policies::builder().build(&rows(table)).unwrap_err();
    let told: Vec<_> = error.rows().iter().map(|row| (row.row(), row.field().unwrap())).collect();
    assert_eq!(
        told,
        [
            ("a", "cost"),
            ("a", "kee"),
            ("a", "limit"),
            ("b", "limit"),
            ("b", "status"),
            ("b", "cache"),
            ("b", "rate")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_bad_table_leaves_the_old_one_in_force() {
    let policies = policies("[[policy]]\nname = 'a'\nlimit = 5\nperiod = '1h'");
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 3).await, (3, vec![], 0));
    let bad = rows("[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\n[[policy]]\nname = 'b'");
    assert!(policies.load(&bad).is_err());
    assert_eq!(burst(&policies, &call, 3).await, (2, vec![], 1));
}

/// `1M` is a month of humantime, and a limit 43,830 times stricter than that of a minute.
#[test]
fn the_letter_of_a_month_is_no_duration() {
    let hold = "algorithm = 'budget'\n";
    for (fields, field) in [
        ("limit = 5\nperiod = '1M'".to_owned(), "period"),
        ("limit = 5\nperiod = '1m1M'".to_owned(), "period"),
        ("limit = 5\nperiod = '1m 1M'".to_owned(), "period"),
        (format!("{BASE}max_wait = '1M'"), "max_wait"),
        (format!("{BASE}horizon = '1M'"), "horizon"),
        (format!("{BASE}{hold}max_hold = '1M'"), "max_hold"),
    ] {
        let error =
            wrong(&format!("name = 'bad'\n{}", fields.trim_start_matches("name = 'bad'\n")));
        let text = error.to_string();
        assert!(text.contains(field) && text.contains("write 1min or 30days"), "{text}");
    }
    for period in ["1min", "1m", "1month", "30days"] {
        let row = format!("[[policy]]\nname = 'good'\nlimit = 1\nperiod = '{period}'\n");
        Policies::builder().build(&rows(&row)).expect(period);
    }
}

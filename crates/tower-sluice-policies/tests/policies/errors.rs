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

#[test]
fn every_error_names_its_row_and_its_field() {
    for (fields, field) in [
        ("limitt = 5", "limitt"),
        ("algorithm = 'bucket'", "algorithm"),
        ("algorithm = 7", "algorithm"),
        ("algorithm = 'fixed_window'\nburst = 5", "burst"),
        ("algorithm = 'sliding_log'\nburst = 5", "burst"),
        ("algorithm = 'sliding_window'\nburst = 9", "burst"),
        ("algorithm = 'sliding_counter'\nburst = 5", "burst"),
        ("algorithm = 'smooth_warming_up'\nburst = 9", "burst"),
        ("burst = 0", "burst"),
        ("burst = -1", "burst"),
        ("burst = 'many'", "burst"),
        ("cells = 5", "cells"),
        ("algorithm = 'sliding_window'\ncells = 0", "cells"),
        ("algorithm = 'sliding_window'\ncells = 61", "cells"),
        ("algorithm = 'smooth_warming_up'\nwarm_up = '0s'", "warm_up"),
        ("algorithm = 'smooth_warming_up'\ncold_factor = 0.5", "cold_factor"),
        ("algorithm = 'smooth_bursty'\nburst = 5\nmax_burst = '1s'", "max_burst"),
        ("algorithm = 'smooth_bursty'\nmax_burst = '1ms'\nwait_for_own_cost = true", "max_burst"),
        ("max_wait = 500", "max_wait"),
        ("max_wait = 'soon'", "max_wait"),
        ("max_wait = '1s'\ncache_ratio = 0.5", "cache_ratio"),
        ("cache_ratio = -0.5", "cache_ratio"),
        ("cache_ratio = 'half'", "cache_ratio"),
        ("horizon = 5", "horizon"),
        ("key = 'ip'", "key"),
        ("key = 'header:'", "key"),
        ("key = 'header:x y'", "key"),
        ("key = []", "key"),
        ("key = ['client_ip', 'planet']", "key"),
        ("match = { path = 'api' }", "match"),
        ("match = { path = '/{a}{b}' }", "match"),
        ("match = { paths = '/api' }", "match"),
        ("match = { method = 'G T' }", "match"),
        ("match = { method = ['GET', 'GTE'] }", "match"),
        ("match = []", "match"),
        ("match = ['/a', 7]", "match"),
        ("match = [{ path = '/a' }]", "match"),
        ("match = ['/a', ['/b']]", "match"),
        // The fields of the table in their order.
        ("match = ['/a', 'GET', 'x-a', 'name', true]", "match"),
        ("match = { header = 'x y' }", "match"),
        ("match = 7", "match"),
        ("cost = 0", "cost"),
        ("cost = -1", "cost"),
        ("cost = 1.5", "cost"),
        ("cost = 'content_length'", "cost"),
        // They never fit, whatever was taken before.
        ("cost = 6", "cost"),
        ("cost = 9\nburst = 8", "cost"),
        ("cost = 6\nalgorithm = 'fixed_window'\nmax_wait = '1h'", "cost"),
        ("cost = 6\nalgorithm = 'sliding_log'", "cost"),
        ("cost = 6\nalgorithm = 'sliding_window'", "cost"),
        ("cost = 6\nalgorithm = 'sliding_counter'", "cost"),
        ("cost = 9007199254740993", "cost"),
        ("cost = 9007199254740993\nalgorithm = 'smooth_bursty'", "cost"),
        ("cost = 9\nalgorithm = 'smooth_bursty'\nwait_for_own_cost = true", "cost"),
        ("cost = 1\nalgorithm = 'smooth_warming_up'\nwait_for_own_cost = true", "cost"),
        ("on_error = 'open'", "on_error"),
        ("on_error = { local = 0 }", "on_error"),
        ("on_error = { local = 'two' }", "on_error"),
        ("cost = 3\non_error = { local = 2 }", "on_error"),
        ("on_error = { share = 2 }", "on_error"),
        ("enabled = 'yes'", "enabled"),
        ("shadow = 2", "shadow"),
    ] {
        let error = wrong(&format!("{BASE}{fields}"));
        let [row] = error.rows() else { panic!("{fields}: {error}") };
        assert_eq!(
            (row.table(), row.row(), row.field()),
            ("policy", "bad", Some(field)),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.starts_with(&format!("policy \"bad\": {field}: ")), "{text}");
        assert!(!row.message().is_empty() && !text.contains('\n'), "{text}");
    }
    #[cfg(feature = "redisson")]
    for (fields, field) in [
        ("algorithm = 'redisson'\nburst = 9", "burst"),
        ("algorithm = 'redisson'\ncost = 6", "cost"),
        ("algorithm = 'redisson'\nrate_type = 'all'", "rate_type"),
        ("algorithm = 'redisson'\nkeep_alive = '1ms'", "keep_alive"),
        ("algorithm = 'redisson'\nkeep_alive = '1h 1us'", "keep_alive"),
        ("algorithm = 'budget'\nmax_wait = '2s'\nmax_hold = '1s'", "max_hold"),
        ("algorithm = 'budget'\nmax_hold = '0s'", "max_hold"),
        ("max_hold = '60s'", "max_hold"),
        ("algorithm = 'fixed_window'\nmax_debt = '60s'", "max_debt"),
    ] {
        assert_eq!(wrong(&format!("{BASE}{fields}")).rows()[0].field(), Some(field), "{fields}");
    }
}

#[test]
fn a_quota_that_cannot_be_is_an_error_of_its_field() {
    for (fields, field) in [
        ("limit = 0\nperiod = '1s'\nalgorithm = 'redisson'", "limit"),
        ("limit = '5'\nperiod = '1s'", "limit"),
        ("limit = 5.5\nperiod = '1s'", "limit"),
        ("period = '1s'", "limit"),
        ("limit = 5", "period"),
        ("limit = 5\nperiod = '0s'", "period"),
        ("limit = 5\nperiod = '100years'", "period"),
        ("limit = 5\nperiod = 1", "period"),
        ("limit = 20000\nperiod = '1s'\nalgorithm = 'sliding_log'", "limit"),
        ("limit = 9007199254740993\nperiod = '1s'", "limit"),
        ("limit = 5\nperiod = '1s'\nalgorithm = 'smooth_bursty'\nburst = 900000000000000", "burst"),
        (
            "limit = 1000003\nperiod = '1s'\nalgorithm = 'smooth_bursty'\nmax_burst = '3years'",
            "max_burst",
        ),
        ("limit = 5\nperiod = '1500us'\nalgorithm = 'redisson'", "period"),
        ("limit = 999983\nperiod = '1day'", "limit"),
        ("limit = 1\nperiod = '1day'\nburst = 200000", "burst"),
        ("limit = 1\nperiod = '1day'\nburst = 200000\nalgorithm = 'budget'", "burst"),
        ("limit = 99999\nperiod = '30days'\nalgorithm = 'sliding_counter'", "limit"),
    ] {
        if fields.contains("redisson") && cfg!(not(feature = "redisson")) {
            continue;
        }
        let error = wrong(&format!("name = 'bad'\n{fields}"));
        assert_eq!(error.rows()[0].field(), Some(field), "{error}");
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
        ("{ header = { host = ':80' } }", "\":80\" is not a host"),
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

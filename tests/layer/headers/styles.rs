//! The texts of the fields, and the responses that have them.

use http::StatusCode;
use tower_sluice::limiter::{Origin, PolicyReport};
use tower_sluice::{Error, ErrorKind};

use super::*;

const DRAFT_11: RateLimitHeaders = RateLimitHeaders::new(HeaderStyle::Draft11);

fn two(outcome: Outcome, burst: (u64, Outcome), daily: (u64, Outcome)) -> Decision {
    let report = |name, quota, reset, (left, outcome)| {
        PolicyReport::new(name, quota).with_report(left, reset).with_outcome(outcome)
    };
    let burst = report("burst", Quota::per_second(10), SECOND, burst);
    let daily = report("daily", Quota::per_day(1_000), 36_000 * SECOND, daily);
    Decision::new(outcome).with_instant(NEW_YEAR, 0).with_policies([burst, daily])
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn a_refusal_shows_the_policy_that_refuses_longest() {
    let (wait, long) = (deny(SECOND), deny(7_200 * SECOND));
    let decision = || two(long, (0, wait), (3, long));
    let expected = r#"
retry-after: 7200
ratelimit-policy: "burst";q=10;w=1, "daily";q=1000;w=86400
ratelimit: "daily";r=3;t=7200

retry-after: 7200
ratelimit-policy: 10;w=1, 1000;w=86400
ratelimit: limit=1000, remaining=3, reset=7200

retry-after: 7200
ratelimit-policy: 10;w=1, 1000;w=86400
ratelimit-limit: 1000
ratelimit-remaining: 3
ratelimit-reset: 7200

retry-after: 7200
x-ratelimit-limit: 1000
x-ratelimit-remaining: 3
x-ratelimit-reset: 7200

retry-after: 7200
x-ratelimit-limit: 1000
x-ratelimit-remaining: 3
x-ratelimit-reset: 1767232800"#;
    let shown = STYLES.map(|style| lines(&rejected(style, decision())).join("\n"));
    assert_eq!(shown.join("\n\n"), expected.trim_start());
    assert_eq!(lines(&rejected(HeaderStyle::None, decision())), ["retry-after: 7200"]);
}

#[test]
fn the_reset_is_rounded_up_and_left_out_when_nothing_is_taken() {
    let shown = |style, outcome, left, millis| {
        let decision = api(outcome, left, Duration::from_millis(millis));
        lines(&annotated(always(style), decision)).pop().unwrap()
    };
    let draft = |left, millis| shown(HeaderStyle::Draft11, Outcome::Allow, left, millis);
    assert_eq!(draft(99, 0), r#"ratelimit: "api";r=99;t=1"#);
    assert_eq!(draft(99, 1), r#"ratelimit: "api";r=99;t=1"#);
    assert_eq!(draft(99, 1_000), r#"ratelimit: "api";r=99;t=1"#);
    assert_eq!(draft(40, 36_001), r#"ratelimit: "api";r=40;t=37"#);
    assert_eq!(draft(100, 0), r#"ratelimit: "api";r=100"#);
    // More than the quota is left where unused permits are stored.
    assert_eq!(draft(250, 0), r#"ratelimit: "api";r=100"#);
    let full = |style| shown(style, Outcome::Allow, 100, 0);
    assert_eq!(full(HeaderStyle::Draft07), "ratelimit: limit=100, remaining=100, reset=0");
    assert_eq!(full(HeaderStyle::LegacyEpoch), "x-ratelimit-reset: 1767225600");
    // The response leaves once the reserved wait is over.
    let waited = |style| shown(style, Outcome::Wait(2 * SECOND), 0, 60_500);
    assert_eq!(waited(HeaderStyle::Draft11), r#"ratelimit: "api";r=0;t=59"#);
    // 59 s after the response, which leaves 2 s after the decision.
    assert_eq!(waited(HeaderStyle::LegacyEpoch), "x-ratelimit-reset: 1767225661");
}

#[test]
fn no_number_exceeds_those_of_a_structured_field() {
    let most = 1_u64 << 50;
    let shown = |style, outcome, left| {
        let decision = Decision::new(outcome)
            .with_limiter("huge".into(), Quota::new(most, Duration::from_micros(1)))
            .with_report(left, SECOND);
        lines(&annotated(always(style), decision))
    };
    let policy = r#"ratelimit-policy: "huge";q=999999999999999"#;
    let draft_11 = |left| shown(HeaderStyle::Draft11, Outcome::Allow, left);
    // As much as the quota says.
    assert_eq!(draft_11(most - 1), [policy, r#"ratelimit: "huge";r=999999999999999"#]);
    assert_eq!(draft_11(7), [policy, r#"ratelimit: "huge";r=7;t=1"#]);
    assert_eq!(
        shown(HeaderStyle::Draft06, Outcome::Allow, most),
        [
            "ratelimit-policy: 999999999999999",
            "ratelimit-limit: 999999999999999",
            "ratelimit-remaining: 999999999999999",
            "ratelimit-reset: 0",
        ]
    );
}

// Case 86.
#[test]
fn a_name_that_no_field_may_hold_is_changed() {
    let decision = Decision::new(Outcome::Allow)
        .with_limiter("api when \"redis\"\r\nis: away".into(), Quota::per_second(5))
        .with_report(1, SECOND);
    let headers = annotated(always(HeaderStyle::Draft11), decision);
    assert_eq!(field(&headers, "ratelimit"), Some(r#""api-when--redis---is:-away";r=1;t=1"#));
}

#[test]
fn admitted_responses_have_the_fields_by_option() {
    let has = |headers: RateLimitHeaders, left| {
        let decision = api(Outcome::Allow, left, 30 * SECOND);
        !annotated(headers, decision).is_empty()
    };
    assert!(!has(RateLimitHeaders::default(), 0) && !has(DRAFT_11, 0));
    let near = DRAFT_11.on_admitted(OnAdmitted::LeftBelowPercent(20));
    assert_eq!([0, 19, 20, 99].map(|left| has(near, left)), [true, true, false, false]);
    assert!(has(DRAFT_11.on_admitted(OnAdmitted::Always), 99));
    // A refusal has them whatever the option.
    assert!(rejected(near, api(deny(SECOND), 90, SECOND)).contains_key("ratelimit"));
    let new: Response<()> = HttpResponder::new()
        .refuse_in_handler(Request::new(()), Refusal::Denied(api(deny(SECOND), 0, SECOND)));
    assert_eq!(field(new.headers(), "ratelimit"), Some(r#""api";r=0;t=1"#));
}

#[test]
fn redirects_and_trailers_may_have_none() {
    let fields = |headers: RateLimitHeaders, status: u16| {
        let responder = HttpResponder::new().headers(headers);
        let mut response = Response::builder().status(status).body(()).unwrap();
        let respond: &dyn Respond<Request<()>, Response<()>, Infallible, Error = Infallible> =
            &responder;
        respond.annotate(&mut api(Outcome::Allow, 1, SECOND), &mut response);
        response.headers().len()
    };
    let all = always(HeaderStyle::Draft11);
    assert_eq!([200, 302, 404].map(|status| fields(all, status)), [2, 2, 2]);
    assert_eq!([200, 302, 404].map(|status| fields(all.skip_redirects(), status)), [2, 0, 2]);
    let trailers_only = [("grpc-status", "5")];
    let response = annotated_beside(all, api(Outcome::Allow, 1, SECOND), &trailers_only);
    assert_eq!(lines(response.headers()), ["grpc-status: 5"]);
}

#[test]
fn a_capped_rate_raises_the_reset_and_nothing_else() {
    let shown = |left, seconds| {
        let headers = always(HeaderStyle::Draft11).cap_rate();
        let headers = annotated(headers, api(Outcome::Allow, left, seconds * SECOND));
        field(&headers, "ratelimit").unwrap().to_owned()
    };
    // 90 left, and the window ends in 2 s: 90 / 54 is the rate, and 90 / 2 is not.
    assert_eq!(shown(90, 2), r#""api";r=90;t=54"#);
    assert_eq!(shown(1, 50), r#""api";r=1;t=50"#);
    assert_eq!(shown(100, 0), r#""api";r=100"#);
    let refused = rejected(DRAFT_11.cap_rate(), api(deny(SECOND), 50, SECOND));
    assert_eq!(field(&refused, "ratelimit"), Some(r#""api";r=50;t=1"#));
}

#[test]
fn what_the_inner_service_has_set_is_kept() {
    let decision = || api(Outcome::Allow, 42, 13 * SECOND);
    let beside = |style, inner: &[(&'static str, &'static str)]| {
        lines(annotated_beside(always(style), decision(), inner).headers())
    };
    assert_eq!(
        beside(
            HeaderStyle::Draft11,
            &[("ratelimit-policy", r#""up";q=1"#), ("ratelimit", r#""up";r=1"#)]
        ),
        [
            r#"ratelimit-policy: "up";q=1"#,
            r#"ratelimit-policy: "api";q=100;w=60"#,
            r#"ratelimit: "up";r=1"#,
            r#"ratelimit: "api";r=42;t=13"#,
        ]
    );
    assert_eq!(
        beside(HeaderStyle::Draft07, &[("ratelimit-policy", "1"), ("ratelimit", "limit=1")]),
        ["ratelimit-policy: 1", "ratelimit-policy: 100;w=60", "ratelimit: limit=1"]
    );
    assert_eq!(
        beside(HeaderStyle::Draft06, &[("ratelimit-remaining", "7")]),
        ["ratelimit-remaining: 7", "ratelimit-policy: 100;w=60"]
    );
    for style in [HeaderStyle::Legacy, HeaderStyle::LegacyEpoch] {
        let inner = &[("x-ratelimit-limit", "1")];
        assert_eq!(beside(style, inner), ["x-ratelimit-limit: 1"]);
    }
}

#[test]
fn nothing_is_said_where_nothing_was_decided() {
    for style in STYLES {
        for origin in [Origin::FailOpen, Origin::Off, Origin::Shadow] {
            let decision = api(Outcome::Allow, 42, SECOND).with_origin(origin);
            assert_eq!(lines(&annotated(always(style), decision)), [""; 0], "{origin:?}");
        }
        assert!(annotated(always(style), Decision::new(Outcome::Allow)).is_empty());
        let unnamed = Decision::new(deny(SECOND)).with_report(0, SECOND);
        assert_eq!(lines(&rejected(style, unnamed)), ["retry-after: 1"]);
        for refusal in [
            Refusal::NoKey(Error::new(ErrorKind::Request, "no header x-user")),
            Refusal::Undecided(Error::new(ErrorKind::Infrastructure, "away")),
            Refusal::Undecided(Error::new(ErrorKind::Request, "the key is empty")),
        ] {
            let responder = HttpResponder::new().headers(always(style));
            let response: Response<()> = responder.refuse_in_handler(Request::new(()), refusal);
            let fields =
                response.headers().keys().filter(|name| name.as_str().contains("ratelimit"));
            assert_eq!(fields.count(), 0);
        }
    }
}

#[test]
fn of_a_limiter_that_does_not_say_what_is_left_the_policy_is_shown() {
    let decision = || Decision::new(deny(SECOND)).with_limiter("x".into(), Quota::per_second(5));
    let shown = |style| lines(&rejected(style, decision()));
    assert_eq!(shown(HeaderStyle::Draft11), ["retry-after: 1", r#"ratelimit-policy: "x";q=5;w=1"#]);
    assert_eq!(shown(HeaderStyle::Draft06), ["retry-after: 1", "ratelimit-policy: 5;w=1"]);
    assert_eq!(shown(HeaderStyle::Legacy), ["retry-after: 1"]);

    // One that refuses beside a policy that admits.
    let admits = PolicyReport::new("x", Quota::per_second(5)).with_report(4, SECOND);
    let headers = rejected(DRAFT_11, Decision::new(deny(SECOND)).with_policies([admits]));
    assert_eq!(lines(&headers), ["retry-after: 1", r#"ratelimit-policy: "x";q=5;w=1"#]);
}

#[test]
fn problem_documents_say_what_kind_of_refusal_it_is() {
    let body = |request: http::request::Builder, refusal| {
        let responder = HttpResponder::new().problem_json();
        let response: Response<String> =
            responder.refuse_in_handler(request.body(()).unwrap(), refusal);
        assert_eq!(field(response.headers(), "content-type"), Some("application/problem+json"));
        let empty = response.body().is_empty();
        let json = if empty { "null" } else { response.body() };
        (response.status(), serde_json::from_str::<serde_json::Value>(json).unwrap())
    };
    let undecided = |kind| Refusal::Undecided(Error::new(kind, "the \"key\" is\nodd"));
    let (status, json) = body(Request::get("/"), undecided(ErrorKind::Infrastructure));
    let expected = serde_json::json!({
        "type": "about:blank", "title": "Service Unavailable", "status": 503
    });
    assert_eq!((status, json), (StatusCode::SERVICE_UNAVAILABLE, expected));
    let (status, json) = body(Request::get("/"), undecided(ErrorKind::Request));
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(json["detail"], "the \"key\" is\nodd");
    let no_key = Refusal::NoKey(Error::new(ErrorKind::Request, "no header x-user"));
    let (_, json) = body(Request::get("/"), no_key);
    assert_eq!(json["detail"], "no header x-user");
    assert_eq!((&json["title"], &json["status"]), (&"Bad Request".into(), &400.into()));

    let both = || Refusal::Denied(two(deny(SECOND), (0, deny(SECOND)), (1, deny(SECOND / 2))));
    let (_, json) = body(Request::get("/"), both());
    assert_eq!(json["violated-policies"], serde_json::json!(["burst", "daily"]));
    let one = Refusal::Denied(two(deny(SECOND), (0, deny(SECOND)), (1, Outcome::Allow)));
    assert_eq!(body(Request::get("/"), one).1["violated-policies"], serde_json::json!(["burst"]));
    let unknown = Refusal::Denied(Decision::new(deny(SECOND)));
    assert_eq!(body(Request::get("/"), unknown).1["violated-policies"], serde_json::json!([]));
    // No response to HEAD has a body.
    assert_eq!(body(Request::head("/"), both()).1, serde_json::Value::Null);
}

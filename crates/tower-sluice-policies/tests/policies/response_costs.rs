//! Costs that the response states: the charge is settled with them, and is never free.

use http::Response;
use support::{Server, eventually};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_sluice::respond::{Answer, SettleHandle, WithBody};
use tower_sluice::{LimiterExt, RateLimitLayer, Settle};
use tower_sluice_policies::{PoliciesBuilder, ResponseCosts};

use super::over_redis::PATIENT;
use super::*;

/// A row that is charged 10 until the response says more, and a row with a cost of its own.
fn table(algorithm: &str, fields: &str) -> String {
    format!(
        "{{ name = 'tokens', algorithm = '{algorithm}', limit = 1000, period = '1000h', \
            key = 'header:x-user', cost = {{ response_header = 'x-tokens', charge = 10 }}{fields} }},
         {{ name = 'requests', algorithm = 'fixed_window', limit = 100, period = '1000h', \
            key = 'header:x-user' }}"
    )
}

/// Answers with these lines of `x-tokens`.
fn layered<L>(layer: &L, lines: &'static [&'static str]) -> L::Service
where
    L: Layer<Inner>,
{
    layer.layer(Inner(lines))
}

#[derive(Clone)]
struct Inner(&'static [&'static str]);

impl tower::Service<Request<()>> for Inner {
    type Response = Response<String>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Response<String>, BoxError>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(String::from("{}"));
        for line in self.0 {
            response.headers_mut().append("x-tokens", line.parse().expect("a value"));
        }
        std::future::ready(Ok(response))
    }
}

async fn both_left(policies: &Policies, user: &str) -> [u64; 2] {
    [left(policies, "tokens", user).await, left(policies, "requests", user).await]
}

fn by(user: &str) -> Request<()> {
    request("GET", "/", &[&format!("x-user: {user}")])
}

/// Tables in the memory of this process, and over Redis.
fn both(server: &Server, table: &str) -> [Policies; 2] {
    let over = Policies::builder().redis(server.pool()).decision_timeout(PATIENT);
    [Policies::builder(), over].map(|builder: PoliciesBuilder| builder.build(&rows(table)).unwrap())
}

#[tokio::test]
async fn a_header_of_the_response_states_the_cost_whatever_the_algorithm() {
    let server = Server::start();
    for (place, algorithm) in [
        "token_bucket",
        "budget",
        "fixed_window",
        "sliding_log",
        "sliding_window",
        "sliding_counter",
        "smooth_bursty",
    ]
    .into_iter()
    .enumerate()
    {
        for policies in both(&server, &table(algorithm, "")) {
            let user = format!("alice-{place}");
            for (lines, tokens, requests) in
                [(&["70"][..], 930, 99), (&[" 4 "], 926, 98), (&["0"], 926, 97), (&["10"], 916, 96)]
            {
                layered(&policies.layer(), lines).oneshot(by(&user)).await.unwrap();
                let is_settled = async || both_left(&policies, &user).await == [tokens, requests];
                eventually(&format!("{algorithm}: {lines:?}"), is_settled).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_valid_cost_keeps_the_charge() {
    let policies = policies(&table("token_bucket", ""));
    let wrong: [&[&str]; 9] = [
        &[],
        &[""],
        &["-5"],
        &["+5"],
        &["1.5"],
        &["many"],
        &["5", "5"],
        &["9007199254740993"],
        &["99999999999999999999999"],
    ];
    for (lines, times) in wrong.into_iter().zip(1..) {
        layered(&policies.layer(), lines).oneshot(by("alice")).await.unwrap();
        let expected = [1_000 - 10 * times, 100 - times];
        assert_eq!(both_left(&policies, "alice").await, expected, "{lines:?}");
    }
}

/// The response may be settled by other means too, and the policies may be wrapped.
#[tokio::test(start_paused = true)]
async fn the_cost_of_a_row_stays_its_own_in_every_layer() {
    let policies = policies(&table("budget", ""));
    let of = |user| (by(user), &["70"][..]);
    let layer = policies.layer().settle(|_: Answer<'_, Response<String>, BoxError>| Settle::Keep);
    let (call, lines) = of("keep");
    layered(&layer, lines).oneshot(call).await.unwrap();
    let layer = policies.layer().settle_later(WithBody);
    let (call, lines) = of("later");
    drop(layered(&layer, lines).oneshot(call).await.unwrap());
    let layer = RateLimitLayer::new(policies.clone().timeout(HOUR).deny_cache(), policies.clone());
    let (call, lines) = of("wrapped");
    layered(&layer, lines).oneshot(call).await.unwrap();
    for user in ["keep", "later", "wrapped"] {
        assert_eq!(both_left(&policies, user).await, [930, 99], "{user}");
    }
    // What the layer says of the whole request holds for the other rows.
    let layer = policies.layer().settle(|_: Answer<'_, Response<String>, BoxError>| Settle::Refund);
    let (call, lines) = of("refund");
    layered(&layer, lines).oneshot(call).await.unwrap();
    assert_eq!(both_left(&policies, "refund").await, [930, 100]);
    layered(&layer, &[]).oneshot(by("nothing")).await.unwrap();
    assert_eq!(both_left(&policies, "nothing").await, [1_000, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_row_in_a_shadow_is_settled_too() {
    let policies = policies(&table("fixed_window", ", shadow = true"));
    layered(&policies.layer(), &["70"]).oneshot(by("alice")).await.unwrap();
    assert_eq!(both_left(&policies, "alice").await, [930, 99]);
    let other = table("fixed_window", "").replace("limit = 100,", "limit = 100, shadow = true,");
    let policies = super::policies(&other);
    layered(&policies.layer(), &["70"]).oneshot(by("alice")).await.unwrap();
    assert_eq!(both_left(&policies, "alice").await, [930, 99]);
}

/// More rows than one call decides about, of which each has a header of its own.
#[tokio::test]
async fn each_of_many_rows_has_its_own_cost() {
    let server = Server::start();
    let row = |place: usize| {
        format!(
            "{{ name = 'p{place}', algorithm = 'fixed_window', limit = 1000, period = '1000h', \
                   cost = 'response_header:x-{place}' }},"
        )
    };
    for policies in both(&server, &(0..20).map(row).collect::<String>()) {
        let inner = service_fn(|_: Request<()>| async {
            let mut response = Response::builder();
            for place in 0..20 {
                response = response.header(format!("x-{place}"), 10 + place);
            }
            Ok::<_, BoxError>(response.body(String::new())?)
        });
        policies.layer().layer(inner).oneshot(request("GET", "/", &[])).await.unwrap();
        for place in 0..20 {
            let name = format!("p{place}");
            let is_settled = async || left(&policies, &name, "global").await == 990 - place;
            eventually(&name, is_settled).await;
        }
    }
}

/// A budget holds the charge until the answer. If its caller leaves before, the charge stays.
#[tokio::test(start_paused = true)]
async fn what_is_charged_is_held_until_the_response_and_stays_if_the_caller_leaves() {
    let policies = policies(&table("budget", ", max_hold = '60s'"));
    let inner = service_fn(|_: Request<()>| async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        Ok::<_, BoxError>(Response::builder().header("x-tokens", 3).body(String::new())?)
    });
    let service = policies.layer().layer(inner);
    let slow = tokio::spawn(service.clone().oneshot(by("alice")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(both_left(&policies, "alice").await, [990, 99]);
    slow.await.unwrap().unwrap();
    assert_eq!(both_left(&policies, "alice").await, [997, 99]);
    let left = tokio::time::timeout(Duration::from_secs(5), service.oneshot(by("bob"))).await;
    assert!(left.is_err());
    assert_eq!(both_left(&policies, "bob").await, [990, 99]);
}

/// A program that reads bodies states their numbers.
#[tokio::test(start_paused = true)]
async fn a_program_reads_the_numbers_of_a_body() {
    let row = |pointers: &str| {
        let row = format!(
            "{{ name = 'tokens', limit = 1000, period = '1000h', key = 'header:x-user', \
               cost = {{ response_json = {pointers}, charge = 10 }} }},
             {{ name = 'requests', limit = 100, period = '1000h', key = 'header:x-user' }}"
        );
        Policies::builder().reads_bodies().build(&rows(&row)).unwrap()
    };
    let (one, two) = (row("'/a/b'"), row("['/a/b', '/c']"));
    for (place, (policies, numbers, is_whole, tokens)) in [
        (&one, vec![Some(70)], true, 930),
        (&one, vec![Some(0)], true, 1_000),
        (&one, vec![None], true, 990),
        (&one, vec![], true, 990),
        (&one, vec![Some(3)], false, 990),
        (&one, vec![Some(70)], false, 930),
        (&one, vec![Some(u64::MAX)], true, 990),
        (&two, vec![Some(3), Some(4)], true, 993),
        (&two, vec![Some(3), None], true, 990),
        (&two, vec![None, Some(70)], true, 930),
        (&two, vec![Some(u64::MAX), Some(u64::MAX)], true, 990),
    ]
    .into_iter()
    .enumerate()
    {
        let read = service_fn(move |request: Request<()>| {
            let units = request.extensions().get::<SettleHandle>().and_then(SettleHandle::take);
            let units = units.expect("it took units");
            let costs = ResponseCosts::of(&units).expect("a row asks for it");
            assert_eq!(costs.pointers().next(), Some("/a/b"));
            costs.read_numbers(&numbers, is_whole);
            let charged = units.cost();
            drop(units.settle(charged));
            async { Ok::<_, BoxError>(Response::new(String::new())) }
        });
        let layer = policies.layer().settle_later(tower_sluice::respond::InHandler);
        let user = place.to_string();
        layer.layer(read).oneshot(by(&user)).await.unwrap();
        assert_eq!(both_left(policies, &user).await, [tokens, 99], "{place}");
    }
}

#[test]
fn a_cost_in_a_response_is_written_and_read_back() {
    use tower_sluice_policies::serde_json::{from_str, to_string};
    let row = |cost: &str| format!("{{ name = 'p', limit = 99, period = '1h', cost = {cost} }}");
    let builder = || Policies::builder().reads_bodies();
    for cost in [
        "'response_header:x-tokens'",
        "'response_json:/usage/total_tokens'",
        "{ response_json = ['/a', '/b'] }",
        "{ response_header = 'x-tokens', charge = 50 }",
        "{ response_json = '/a', charge = 'content_length_kb' }",
        "{ response_json = '/a', charge = { request_header = 'x-most', default = 5 } }",
    ] {
        let policies = builder().build(&rows(&row(cost))).unwrap();
        let text = to_string(policies.policies()[0].policy()).unwrap();
        let again = builder().build(&from_str(&format!("{{\"policy\": [{text}]}}")).unwrap());
        assert_eq!(to_string(again.unwrap().policies()[0].policy()).unwrap(), text);
        let written: toml::Table = toml::from_str(&format!("cost = {cost}")).unwrap();
        let read: toml::Table = from_str(&text).unwrap();
        assert_eq!(read["cost"], written["cost"]);
    }
    for (cost, why) in [
        ("'response_header:'", "is not a header name"),
        ("'response_json:usage'", "is not a JSON pointer"),
        ("'response_body:/a'", "is not a cost"),
        ("'charge:3'", "is not a cost"),
        ("{ response_json = [], charge = 1 }", "is not a JSON pointer"),
        ("{ response_json = 3 }", "is not a JSON pointer"),
        ("{ charge = 3 }", "is not a cost"),
        ("{ response_header = 'x', default = 1 }", "is not a cost"),
        ("{ response_header = 'x', charge = 0 }", "at least 1"),
        ("{ response_header = 'x', charge = 'response_header:y' }", "before the response"),
        ("{ response_header = 'x', response_json = '/a' }", "is not a cost"),
        ("{ response_header = 'x', charge = 100 }", "no request of this cost"),
    ] {
        let error = builder().build(&rows(&row(cost))).unwrap_err().to_string();
        assert!(error.contains("cost: ") && error.contains(why), "{cost}: {error}");
    }
    let json = rows(&row("'response_json:/a'"));
    let error = Policies::builder().build(&json).unwrap_err().to_string();
    assert!(error.contains("does not read the bodies"), "{error}");
    let at_once =
        "{ name = 'p', algorithm = 'concurrency', limit = 9, cost = 'response_header:x' }";
    let error = Policies::builder().build(&rows(at_once)).unwrap_err().to_string();
    assert!(error.contains("cost: a concurrency"), "{error}");
}

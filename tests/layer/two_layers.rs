//! Two layers on one request: the fields show the tighter of both limits.

use std::convert::Infallible;

use http::{Request, Response};
use tower::{Layer, ServiceExt};
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::key::Global;
use tower_sluice::respond::{HeaderStyle, OnAdmitted, RateLimitHeaders};
use tower_sluice::{HttpResponder, Memory, Quota, RateLimitLayer};

type Limit = RateLimitLayer<Memory<FixedWindow>, Global, HttpResponder>;

fn limit(units: u64, style: HeaderStyle) -> Limit {
    let quota = FixedWindow::new(Quota::per_hour(units)).anchored();
    let headers = RateLimitHeaders::new(style).on_admitted(OnAdmitted::Always);
    let limiter = Memory::new(format!("of-{units}"), quota);
    RateLimitLayer::new(limiter, Global).respond(HttpResponder::new().headers(headers))
}

/// The status and a field of three requests through two layers around `upstream`.
async fn ask(
    [outer, inner]: [Limit; 2],
    upstream: &'static [(&'static str, &'static str)],
    field: &str,
) -> [(u16, String); 3] {
    let handler = tower::service_fn(move |_: Request<()>| async move {
        let mut response = Response::new(String::new());
        for (name, value) in upstream {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let service = outer.layer(inner.layer(handler));
    let mut seen = [const { (0, String::new()) }; 3];
    for seen in &mut seen {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        let lines: Vec<_> = response.headers().get_all(field).iter().collect();
        assert!(lines.len() <= 1, "{lines:?}");
        let line = lines.first().map_or("", |line| line.to_str().unwrap());
        *seen = (response.status().as_u16(), line.to_owned());
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn the_tighter_of_two_layers_is_shown_whichever_is_outside() {
    let styles = [HeaderStyle::Legacy, HeaderStyle::LegacyEpoch, HeaderStyle::Draft06];
    for (style, begin) in styles.into_iter().zip(["x-ratelimit", "x-ratelimit", "ratelimit"]) {
        for numbers in [[1_000, 2], [2, 1_000]] {
            let layers = || numbers.map(|units| limit(units, style));
            for (field, shown) in [("remaining", ["1", "0", "0"]), ("limit", ["2", "2", "2"])] {
                let field = format!("{begin}-{field}");
                let statuses = [200, 200, 429];
                let expected = std::array::from_fn(|at| (statuses[at], shown[at].to_owned()));
                assert_eq!(ask(layers(), &[], &field).await, expected, "{style} {numbers:?}");
            }
        }
    }
    for numbers in [[1_000, 2], [2, 1_000]] {
        let layers = numbers.map(|units| limit(units, HeaderStyle::Draft07));
        let seen = ask(layers, &[], "ratelimit").await.map(|(_, line)| line);
        let expected = [1, 0, 0].map(|left| format!("limit=2, remaining={left}, reset=3600"));
        assert_eq!(seen, expected, "{numbers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_an_upstream_stay() {
    let styles = [
        (HeaderStyle::Legacy, "x-ratelimit-remaining", "7"),
        (HeaderStyle::Draft06, "ratelimit-remaining", "7"),
        (HeaderStyle::Draft07, "ratelimit", "7"),
    ];
    for (style, field, kept) in styles {
        let upstream: &[_] = match style {
            HeaderStyle::Legacy => &[("x-ratelimit-remaining", "7")],
            HeaderStyle::Draft06 => &[("ratelimit-remaining", "7")],
            _ => &[("ratelimit", "7")],
        };
        let layers = [limit(1_000, style), limit(2, style)];
        let seen = ask(layers, upstream, field).await;
        assert_eq!([&*seen[0].1, &*seen[1].1], [kept; 2], "{style}");
        // The refusal is no answer of the upstream.
        assert_eq!(seen[2].0, 429);
        assert_ne!(seen[2].1, kept);
    }
}

/// The marks of one style say nothing about the fields of another.
#[tokio::test(start_paused = true)]
async fn layers_of_two_styles_keep_the_fields_of_an_upstream() {
    let layers = [limit(2, HeaderStyle::Draft06), limit(3, HeaderStyle::Legacy)];
    let seen = ask(layers, &[("ratelimit-remaining", "7")], "ratelimit-remaining").await;
    assert_eq!([&*seen[0].1, &*seen[1].1], ["7"; 2]);
}

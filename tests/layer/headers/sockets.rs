//! All styles over a real socket, admitted and refused.

use axum::Router;
use axum::routing::get;
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::key::Global;
use tower_sluice::{Memory, RateLimitLayer};

use super::*;
use crate::serve;
use support::http::get as ask;

const NAMES: [&str; 9] = [
    "retry-after",
    "ratelimit-policy",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

#[tokio::test]
async fn every_style_is_sent_over_a_socket() {
    let lists = "100;w=60, 2;w=86400";
    let draft_11 = r#""api-1";q=100;w=60, "api-2";q=2;w=86400"#;
    // On admitted responses half of the two in a day are left; on refusals none.
    let table = [
        (HeaderStyle::Draft11, vec![draft_11, r#""api-2";r=1;t=43200"#]),
        (HeaderStyle::Draft07, vec![lists, "limit=2, remaining=1, reset=43200"]),
        (HeaderStyle::Draft06, vec![lists, "2", "1", "43200"]),
        (HeaderStyle::Legacy, vec!["2", "1", "43200"]),
        (HeaderStyle::LegacyEpoch, vec!["2", "1", "1767268800"]),
        (HeaderStyle::None, vec![]),
    ];
    for (style, admitted) in table {
        let quotas =
            (FixedWindow::new(Quota::per_minute(100)), TokenBucket::new(Quota::per_day(2)));
        let limiter = Memory::new("api", quotas).clock(|| NEW_YEAR);
        let limit = RateLimitLayer::new(limiter, Global)
            .respond(HttpResponder::new().headers(always(style)));
        let address = serve(Router::new().route("/", get(async || "inner")).layer(limit)).await;
        let fields = async || {
            let answer = ask(address, "/", &[]).await;
            let found = NAMES.iter().filter_map(|name| answer.header(name).map(str::to_owned));
            (answer.status, found.collect::<Vec<_>>())
        };
        let (status, found) = fields().await;
        assert_eq!(
            (status, found),
            (200, admitted.iter().map(|&text| text.into()).collect()),
            "{style}"
        );
        assert_eq!(fields().await.0, 200);
        // The third is refused until one of the two is back.
        let (status, found) = fields().await;
        let mut refused: Vec<_> = admitted
            .iter()
            .map(|text| text.replace("r=1", "r=0").replace("remaining=1", "remaining=0"))
            .collect();
        refused.insert(0, "43200".into());
        if let Some(left) = refused.iter_mut().find(|text| *text == "1") {
            *left = "0".into();
        }
        assert_eq!((status, found), (429, refused), "{style}");
    }
}

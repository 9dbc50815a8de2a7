//! gRPC passes through: HTTP/2 on both sides, streams both ways, trailers, and refusals that a gRPC
//! client understands.

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use common::Gateway;
use common::client::by_http2;
use common::grpc::{call, channel, say, serve, serve_both};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

const LIMITED: &str = r#"
    [[policy]]
    name = "calls"
    algorithm = "token_bucket"
    limit = 2
    period = "1h"
    key = "header:x-api-key"
    match = { path = "/test.Echo/{*method}" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn messages_stream_both_ways_and_trailers_end_them() {
    let (upstream, _serving) = serve("127.0.0.1:0").await;
    for scheme in ["http", "h2c"] {
        let url = format!("{scheme}://{upstream}");
        let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url)]);
        let channel = channel(gateway.listen).await;
        let (words, mut answers) = call(&channel, "alice").await.expect("a call");
        assert_eq!(answers.metadata().get("seen-from").unwrap(), "127.0.0.1");
        for word in ["one", "two", "three"] {
            words.send(word.to_owned()).await.unwrap();
            let answer = answers.get_mut().message().await.expect("an answer");
            assert_eq!(answer.as_deref(), Some(&*word.to_uppercase()), "{scheme}");
        }
        drop(words);
        assert_eq!(answers.get_mut().message().await.expect("the end"), None);

        let (words, mut answers) = call(&channel, "alice").await.expect("a call");
        words.send("fail".to_owned()).await.unwrap();
        let status = answers.get_mut().message().await.expect_err("an error");
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "it was asked to"));
    }
}

/// HTTP/2 has connections of its own, so a call waits for none of HTTP/1.1.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_finds_a_connection_among_many_requests() {
    let upstream = serve_both().await;
    let url = format!("http://{upstream}");
    let gateway =
        Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url), ("MAX_CONNECTIONS", "4")]);
    let requests = by_http2(gateway.listen).await;
    let (mut askers, answered) = (JoinSet::new(), Arc::new(Semaphore::new(0)));
    for _ in 0..16 {
        let (mut requests, answered) = (requests.clone(), Arc::clone(&answered));
        askers.spawn(async move {
            loop {
                requests.ready().await.expect("a connection");
                let request = Request::get("http://gateway/work").body(Body::empty());
                let answer = requests.send_request(request.expect("a request")).await;
                assert_eq!(answer.expect("an answer").status(), 200);
                answered.add_permits(1);
            }
        });
    }
    // All connections are in use by then.
    answered.acquire_many(64).await.expect("open").forget();
    let said = async { say(&channel(gateway.listen).await, "hi").await };
    let said = tokio::select! {
        said = timeout(Duration::from_secs(60), said) => said,
        asker = askers.join_next() => panic!("{asker:?}"),
    };
    assert_eq!(said.expect("in time").expect("an answer"), "HI");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_a_status() {
    let (upstream, _serving) = serve("127.0.0.1:0").await;
    let gateway = Gateway::start(LIMITED, &[("UPSTREAM", &format!("http://{upstream}"))]);
    let channel = channel(gateway.listen).await;
    for left in ["r=1", "r=0"] {
        let (_, answers) = call(&channel, "alice").await.expect("a call");
        let field = answers.metadata().get("ratelimit").expect("a field").to_str().unwrap();
        assert!(field.starts_with(&format!("\"calls\";{left}")), "{field}");
    }
    let status = call(&channel, "alice").await.expect_err("a refusal");
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let pushback = status.metadata().get("grpc-retry-pushback-ms").expect("a pushback");
    let millis: u64 = pushback.to_str().unwrap().parse().expect("a number");
    assert!((1..=1_800_000).contains(&millis), "{millis}");
    assert!(!status.details().is_empty(), "RetryInfo");
    call(&channel, "bob").await.expect("a call");
    let status = call(&channel, "").await.expect_err("no key");
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_goes_away_and_comes_back() {
    let (upstream, serving) = serve("127.0.0.1:0").await;
    let gateway =
        Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &format!("http://{upstream}"))]);
    let channel = channel(gateway.listen).await;
    assert_eq!(say(&channel, "one").await.expect("an answer"), "ONE");
    drop(serving);
    // What runs on the old connection may still be answered.
    let status = loop {
        if let Err(status) = say(&channel, "two").await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let (_, _serving) = serve(&upstream.to_string()).await;
    assert_eq!(say(&channel, "three").await.expect("an answer"), "THREE");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_down_is_a_status() {
    let url = format!("http://127.0.0.1:{}", support::NOWHERE);
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url)]);
    let status = say(&channel(gateway.listen).await, "one").await.expect_err("nobody is there");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "the upstream does not answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_http_2_alone_serves_every_caller() {
    // The service does not speak HTTP/1.1.
    let (upstream, _serving) = serve("127.0.0.1:0").await;
    let gateway =
        Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &format!("h2c://{upstream}"))]);
    let listen = gateway.listen;
    let kind = [("content-type", "application/grpc"), ("te", "trailers")];
    let asked = move || common::request(listen, "POST", "/test.Other/Each", &kind, b"");
    let answer = tokio::task::spawn_blocking(asked).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("grpc-status"), Some("12"), "{answer:?}");
    let gateway =
        Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &format!("http://{upstream}"))]);
    let listen = gateway.listen;
    let asked = move || common::request(listen, "POST", "/test.Other/Each", &kind, b"");
    assert_eq!(tokio::task::spawn_blocking(asked).await.unwrap().status, 502);
}

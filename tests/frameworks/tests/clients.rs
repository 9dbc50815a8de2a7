//! Clients: the layer limits what they send. Who is charged, and what the caller sees.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use http_body_util::{BodyExt, Empty, combinators::BoxBody};
use tower::{Layer, Service, ServiceExt};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::Global;
use tower_sluice::respond::Raise;
use tower_sluice::{LimiterExt, Memory, Quota, RateLimitLayer, Refusal};

/// Two units an hour.
fn supplier() -> Memory<TokenBucket> {
    Memory::new("supplier", TokenBucket::new(Quota::per_hour(2)))
}

/// A server that answers each path with this text, and counts.
async fn serve(text: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let app = Router::new().fallback(async move || {
        counted.fetch_add(1, SeqCst);
        ([("content-type", "application/json")], text)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    (address, calls)
}

/// Finds the refusal among the causes of an error.
fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| matches!(cause.downcast_ref(), Some(Refusal::Denied(_))))
}

#[tokio::test]
async fn reqwest_gets_the_refusal_as_its_error() {
    let (address, calls) = serve("{}").await;
    let limiter = supplier();
    let mut client =
        RateLimitLayer::new(limiter.clone(), Global).respond(Raise).layer(reqwest::Client::new());
    for is_admitted in [true, true, false] {
        let url = format!("http://{address}/").parse().unwrap();
        let request = reqwest::Request::new(reqwest::Method::GET, url);
        match client.ready().await.unwrap().call(request).await {
            Ok(response) => assert!(is_admitted && response.status() == 200),
            Err(error) => assert!(!is_admitted && is_denied(&*error), "{error}"),
        }
    }
    assert_eq!(calls.load(SeqCst), 2);
    assert_eq!(limiter.peek("global").await.unwrap().remaining(), Some(0));
}

/// reqwest's response is made one of `http`, so that the layer can read its status.
#[tokio::test]
async fn reqwest_obeys_a_server_that_says_stop() {
    use tower::util::MapResponseLayer;

    let stop = (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3600")]);
    let app = Router::new().fallback(async move || stop);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    let limiter = supplier();
    let to_http = MapResponseLayer::new(http::Response::<reqwest::Body>::from);
    let mut client = RateLimitLayer::new(limiter.clone(), Global)
        .obey_upstream(Duration::from_secs(3_600))
        .respond(Raise)
        .layer(to_http.layer(reqwest::Client::new()));
    let url = format!("http://{address}/").parse().unwrap();
    let request = reqwest::Request::new(reqwest::Method::GET, url);
    assert_eq!(client.ready().await.unwrap().call(request).await.unwrap().status(), 429);
    assert!(limiter.peek("global").await.unwrap().paused_for().is_some());
}

#[tokio::test]
async fn kube_gets_the_refusal_as_the_cause_of_its_error() {
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::ClientBuilder;
    use kube::{Api, Config};

    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"one"}}"#;
    let (address, calls) = serve(pod).await;
    let limit = RateLimitLayer::new(supplier(), Global).respond(Raise);
    let config = Config::new(format!("http://{address}").parse().unwrap());
    // The service of kube is not `Clone`, which the layer needs.
    let client = ClientBuilder::try_from(config).unwrap();
    let client = client.with_layer(&tower::buffer::BufferLayer::new(64)).with_layer(&limit).build();
    let pods: Api<Pod> = Api::default_namespaced(client);
    for is_admitted in [true, true, false] {
        match pods.get("one").await {
            Ok(pod) => assert!(is_admitted && pod.metadata.name.as_deref() == Some("one")),
            Err(error) => assert!(!is_admitted && is_denied(&error), "{error:?}"),
        }
    }
    assert_eq!(calls.load(SeqCst), 2);
}

#[tokio::test]
async fn the_client_of_hyper_gets_a_429_that_is_made_here() {
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    /// Its own body has no empty one.
    #[derive(Default)]
    struct Maybe(Option<BoxBody<hyper::body::Bytes, hyper::Error>>);

    let (address, calls) = serve("hello").await;
    let client: Client<_, Empty<hyper::body::Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let client = tower::ServiceBuilder::new()
        .layer(RateLimitLayer::new(supplier(), Global))
        .map_response(|response: http::Response<hyper::body::Incoming>| {
            response.map(|body| Maybe(Some(body.boxed())))
        })
        .service(client);
    for status in [200, 200, 429] {
        let request = http::Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
        let body = response.into_body().0;
        assert_eq!(body.is_some(), status == 200);
    }
    assert_eq!(calls.load(SeqCst), 2);
}

#[tokio::test]
async fn a_server_of_hyper_answers_429() {
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;

    let limiter = supplier();
    let inner = tower::service_fn(async |_: http::Request<hyper::body::Incoming>| {
        Ok::<_, Infallible>(http::Response::new(String::from("hello")))
    });
    let service = RateLimitLayer::new(limiter.clone(), Global).layer(inner);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    for status in [200, 200, 429] {
        let response = reqwest::get(format!("http://{address}/")).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers().contains_key("retry-after"), status == 429);
    }
    assert_eq!(limiter.peek("global").await.unwrap().remaining(), Some(0));
}

/// The figure of the guide: callers that send 50 MB before they read, and those that do both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_upload_of_50_mb_sees_429() {
    let quota = Quota::per_hour(1);
    let limiter = Memory::new("uploads", TokenBucket::new(quota));
    limiter.acquire("global").await.unwrap();
    let bare = RateLimitLayer::new(limiter, Global);
    let drained = bare.clone().drain_refused();
    let upload = || axum::routing::post(async |body: axum::body::Bytes| body.len().to_string());
    let app = Router::new().route("/bare", upload().layer(bare));
    let app = app.route("/drained", upload().layer(drained));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });

    let file = vec![0; 50_000_000];
    let mut seen = [0; 2];
    for (path, seen) in ["bare", "drained"].iter().zip(&mut seen) {
        for _ in 0..20 {
            let request = reqwest::Client::new().post(format!("http://{address}/{path}"));
            let answer = request.body(file.clone()).send().await;
            *seen += usize::from(answer.is_ok_and(|answer| answer.status() == 429));
        }
    }
    println!("reqwest: {} of 20 bare, {} of 20 drained", seen[0], seen[1]);
    assert_eq!(seen[1], 20);

    const PYTHON: &str = r#"
import http.client, sys
seen = 0
for _ in range(20):
    connection = http.client.HTTPConnection(sys.argv[1])
    try:
        connection.request("POST", sys.argv[2], body=bytes(50_000_000))
        seen += connection.getresponse().status == 429
    except OSError:
        pass
print(seen)
"#;
    for (path, is_drained) in [("/bare", false), ("/drained", true)] {
        let output = tokio::task::spawn_blocking(move || {
            let mut python = std::process::Command::new("python3");
            python.args(["-c", PYTHON, &address.to_string(), path]).output()
        });
        let output = output.await.unwrap().expect("python3");
        let seen = String::from_utf8(output.stdout).unwrap();
        println!("http.client: {} of 20 at {path}", seen.trim());
        assert!(!is_drained || seen.trim() == "20", "{seen}");
    }
}

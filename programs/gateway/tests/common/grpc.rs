//! A gRPC service, and calls of it. Its messages are strings, so nothing is generated.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{NamedService, StreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceExt};

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Words = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

/// Answers each word at once, in capitals; `fail` with an error.
#[derive(Clone, Copy)]
pub struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Later<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.streaming(Echo, request).await)
        })
    }
}

impl StreamingService<String> for Echo {
    type Response = String;
    type ResponseStream = Words;
    type Future = Later<Result<Response<Words>, Status>>;

    fn call(&mut self, request: Request<Streaming<String>>) -> Self::Future {
        Box::pin(async move {
            let seen = request.metadata().get("x-forwarded-for").cloned();
            let words = request.into_inner().map(|word| match word?.as_str() {
                "fail" => Err(Status::data_loss("it was asked to")),
                word => Ok(word.to_uppercase()),
            });
            let mut response = Response::new(Box::pin(words) as Words);
            if let Some(seen) = seen {
                response.metadata_mut().insert("seen-from", seen);
            }
            Ok(response)
        })
    }
}

/// Serves it until the sender is dropped.
pub async fn serve(address: &str) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind(address).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (end, ended) = oneshot::channel::<()>();
    let server = Server::builder().add_service(Echo);
    tokio::spawn(server.serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
        let _ = ended.await;
    }));
    (address, end)
}

/// A channel to a gateway.
pub async fn channel(gateway: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{gateway}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}

/// Begins a call: the words to say, and the answers.
pub async fn call(
    channel: &Channel,
    key: &'static str,
) -> Result<(mpsc::Sender<String>, Response<Streaming<String>>), Status> {
    let (words, said) = mpsc::channel(4);
    let mut request = Request::new(ReceiverStream::new(said));
    request.metadata_mut().insert("x-api-key", key.parse().expect("a key"));
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static("/test.Echo/Each");
    let codec = ProstCodec::<String, String>::default();
    let answers = grpc.streaming(request, path, codec).await?;
    Ok((words, answers))
}

/// Says a word, and returns the answer.
pub async fn say(channel: &Channel, word: &str) -> Result<String, Status> {
    let (words, mut answers) = call(channel, "alice").await?;
    words.send(word.to_owned()).await.expect("sent");
    let answer = answers.get_mut().message().await?;
    Ok(answer.expect("an answer"))
}

/// Serves it, and a line of text at `/`, over HTTP/1.1 and HTTP/2.
pub async fn serve_both() -> SocketAddr {
    serve_with(answer).await
}

/// Serves answers of a function, over HTTP/1.1 and HTTP/2.
pub async fn serve_with<F, A, B>(answer: F) -> SocketAddr
where
    F: Fn(http::Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<http::Response<B>, Infallible>> + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(answer);
                let mut http = Builder::new(TokioExecutor::new());
                // As small as those of nginx and of Go's gRPC.
                http.http2()
                    .initial_stream_window_size(65_535)
                    .initial_connection_window_size(65_535);
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// A line of text at `/`, and at `/work` after 5 ms of work; the gRPC service elsewhere.
pub async fn answer(request: http::Request<Incoming>) -> Result<http::Response<Body>, Infallible> {
    let path = request.uri().path();
    if path == "/work" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if path == "/" || path == "/work" {
        let text = format!("{:?}", request.version());
        return Ok(http::Response::new(Body::new(axum::body::Body::from(text))));
    }
    Echo.oneshot(request.map(Body::new)).await
}

//! Services of tonic: one of several behind a layer of its own, a stream, and a client in Python.

use std::net::SocketAddr;

use tonic::service::LayerExt;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{LimiterExt, Memory, Quota, RateLimitLayer, by_head};

/// A server whose reflection is limited to two calls an hour for each method, and whose health
/// service is not.
async fn serve(limiter: &Memory<TokenBucket>) -> SocketAddr {
    let limit = RateLimitLayer::new(limiter.clone(), by_head(|head| head.uri().path().to_owned()));
    let (_reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(health).add_service(limit.named_layer(reflection));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

async fn services(channel: Channel) -> Result<usize, Status> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel);
    let mut answers =
        client.server_reflection_info(tokio_stream::once(request)).await?.into_inner();
    let mut number = 0;
    while answers.message().await?.is_some() {
        number += 1;
    }
    Ok(number)
}

#[tokio::test]
async fn a_named_layer_limits_one_service_and_its_streams() {
    let limiter = Memory::new("reflection", TokenBucket::new(Quota::per_hour(2)));
    let address = serve(&limiter).await;
    let channel =
        Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    for _ in 0..2 {
        assert_eq!(services(channel.clone()).await.unwrap(), 1);
    }
    let refused = services(channel.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    assert_eq!(limiter.peek(method).await.unwrap().remaining(), Some(0));
    for _ in 0..5 {
        let mut client = HealthClient::new(channel.clone());
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
}

/// Needs grpcio: `tests/frameworks.sh` installs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_python_reads_code_and_details() {
    const PYTHON: &str = r#"
import sys, grpc
from grpc_status import rpc_status
from google.rpc import error_details_pb2 as details
channel = grpc.insecure_channel(sys.argv[1])
method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
call = channel.stream_stream(method)
for _ in range(3):
    try:
        list(call(iter([b"\x3a\x00"])))
        print("OK")
    except grpc.RpcError as error:
        print(error.code().name)
        for detail in rpc_status.from_call(error).details:
            for kind in (details.RetryInfo, details.QuotaFailure, details.ErrorInfo):
                if detail.Is(kind.DESCRIPTOR):
                    message = kind()
                    detail.Unpack(message)
                    print(kind.DESCRIPTOR.name, " ".join(str(message).split()))
"#;
    let limiter = Memory::new("reflection", TokenBucket::new(Quota::per_hour(2)));
    let address = serve(&limiter).await;
    let python = std::env::var("PYTHON").unwrap_or_else(|_| String::from("python3"));
    let output = tokio::task::spawn_blocking(move || {
        std::process::Command::new(python).args(["-c", PYTHON, &address.to_string()]).output()
    });
    let output = output.await.unwrap().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..3], ["OK", "OK", "RESOURCE_EXHAUSTED"], "{output:?}");
    assert!(lines[3].starts_with("RetryInfo retry_delay"), "{text}");
    assert_eq!(lines[4], r#"QuotaFailure violations { subject: "reflection" }"#);
    let info = r#"ErrorInfo reason: "RATE_LIMIT_EXCEEDED" domain: "tower-sluice""#;
    assert_eq!(lines[5], info);
}

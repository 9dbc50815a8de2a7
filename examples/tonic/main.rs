//! A gRPC server that limits its callers, and a client that reads when to come back.
//!
//! `cargo run -p example-tonic --example tonic` starts both. Of ten calls at once the server admits
//! five. It refuses the others with a delay in the details of the status, which the client prints.

use std::error::Error;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Memory, Quota, RateLimitLayer, by_head};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    println!("gRPC on {address}");
    call_ten_times(address).await
}

/// Serves the health service: five calls a second for each tenant.
async fn serve(listener: TcpListener) -> Result<(), tonic::transport::Error> {
    let limiter = Memory::new("grpc", TokenBucket::new(Quota::per_second(5)));
    let limit = RateLimitLayer::new(limiter, by_head(|head| head.header("x-tenant")));
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limit).add_service(health);
    server.serve_with_incoming(TcpIncoming::from(listener)).await
}

async fn call_ten_times(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let mut client = HealthClient::new(channel.clone());
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-tenant", "a".parse()?);
        calls.spawn(async move { client.check(request).await });
    }
    for answer in calls.join_all().await {
        match answer {
            Ok(_) => println!("admitted"),
            Err(status) => {
                let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
                println!("{:?}: {}, come back after {delay:?}", status.code(), status.message());
            }
        }
    }
    Ok(())
}

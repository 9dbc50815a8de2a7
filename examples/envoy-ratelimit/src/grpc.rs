//! The gRPC server: the rate limit service, health and reflection.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, async_trait};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::decide::Decider;
use crate::descriptors::ENCODED;

/// The name by which clients ask for the health of the service.
const HEALTH: &str = "ratelimit";

#[async_trait]
impl RateLimitService for Decider {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let answer = self.decide(request.get_ref()).await?;
        Ok(Response::new(answer.response))
    }
}

/// Serves until `ending` is over, and then until what runs has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    decider: Decider,
    ending: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let reporter = HealthReporter::new();
    let health = tonic_health::pb::health_server::HealthServer::new(
        tonic_health::server::HealthService::from_health_reporter(reporter.clone()),
    );
    reporter.set_service_status(HEALTH, ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(ENCODED)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let ending = async move {
        ending.await;
        // Clients that watch it go elsewhere.
        reporter.set_service_status(HEALTH, ServingStatus::NotServing).await;
        reporter.set_service_status("", ServingStatus::NotServing).await;
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder()
        .add_service(RateLimitServiceServer::new(decider))
        .add_service(health)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .serve_with_incoming_shutdown(incoming, ending)
        .await?;
    Ok(())
}

//! The gRPC services: rate limits, health and reflection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, NamedService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tonic_prost::ProstEncoder;
use tower::{Service, service_fn};

use crate::calls::{RunningCall, full};
use crate::decide::{Decider, MOST_DESCRIPTORS, too_many};
use crate::descriptors::ENCODED;

/// The name by which clients ask for the health of the service.
const HEALTH: &str = "ratelimit";
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The methods of `grpc.health.v1` and of reflection that answer as long as the caller listens.
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.";
/// The most bytes of a message.
pub(crate) const MOST_BYTES: usize = 4 << 20;
/// The bytes for which a call has room at first. Most messages are shorter.
const BUFFER: usize = 1 << 10;

/// The services, and what says to clients that watch it that they go elsewhere.
pub(crate) async fn services(
    decider: Decider,
) -> Result<(Router, HealthReporter), tonic_reflection::server::Error> {
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
    let routes = Routes::new(DeciderService(decider))
        .add_service(health)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok((routes.prepare().into_axum_router(), reporter))
}

/// Returns true for a call that may never end.
pub(crate) fn is_stream(path: &str) -> bool {
    path == WATCH || path.starts_with(REFLECTION)
}

/// Sends clients that watch the health elsewhere.
pub(crate) async fn end(reporter: &HealthReporter) {
    reporter.set_service_status(HEALTH, ServingStatus::NotServing).await;
    reporter.set_service_status("", ServingStatus::NotServing).await;
}

/// The rate limit service. A generated one would make messages before anybody bounds them.
#[derive(Clone)]
struct DeciderService(Decider);

impl NamedService for DeciderService {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for DeciderService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Self(decider) = self.clone();
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("there is no such method").into_http());
            }
            let decide = service_fn(move |request: Request<RateLimitRequest>| {
                let decider = decider.clone();
                async move {
                    let answer = decider.decide(request.get_ref()).await?;
                    Ok(Response::new(answer.response))
                }
            });
            let call =
                request.extensions().get::<Arc<RunningCall>>().expect("each call is counted");
            let mut grpc =
                Grpc::new(BoundedCodec(Arc::clone(call))).max_decoding_message_size(MOST_BYTES);
            Ok(grpc.unary(decide, request).await)
        })
    }
}

/// Reads requests that have not too many parts. A part of two bytes takes 72 in memory, so parts
/// are counted before they are made, and their memory is among the bytes of the call.
#[derive(Clone)]
struct BoundedCodec(Arc<RunningCall>);

impl Codec for BoundedCodec {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(self.buffer_settings())
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Decoder for BoundedCodec {
    type Item = RateLimitRequest;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<RateLimitRequest>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        let (descriptors, entries) = parts(&message);
        if descriptors > MOST_DESCRIPTORS || entries > MOST_ENTRIES {
            return Err(too_many());
        }
        if !self.0.has_room(descriptors * DESCRIPTOR + entries * ENTRY) {
            return Err(full());
        }
        let request = RateLimitRequest::decode(message);
        request.map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}

/// The most entries of all descriptors together.
const MOST_ENTRIES: usize = 16 * MOST_DESCRIPTORS;
/// The memory of a descriptor, and of an entry with two short texts, each in a block of its own.
const DESCRIPTOR: usize = size_of::<RateLimitDescriptor>();
pub(crate) const ENTRY: usize = size_of::<Entry>() + 2 * 32;
/// The numbers of `descriptors` in a request, and of `entries` in a descriptor.
const DESCRIPTORS: u32 = 2;
const ENTRIES: u32 = 1;

/// The number of descriptors of a message, and of all their entries.
fn parts(message: &[u8]) -> (usize, usize) {
    let (mut descriptors, mut entries) = (0, 0);
    fields(message, DESCRIPTORS, |descriptor| {
        descriptors += 1;
        fields(descriptor, ENTRIES, |_| entries += 1);
    });
    (descriptors, entries)
}

/// Calls `each` with the bytes of each field of this number, up to what is no message.
fn fields(mut message: &[u8], number: u32, mut each: impl FnMut(&[u8])) {
    while let Ok((found, kind)) = decode_key(&mut message) {
        if found != number || kind != WireType::LengthDelimited {
            if skip_field(kind, found, &mut message, DecodeContext::default()).is_err() {
                return;
            }
            continue;
        }
        let length =
            decode_varint(&mut message).ok().and_then(|length| usize::try_from(length).ok());
        let Some((field, rest)) = length.and_then(|length| message.split_at_checked(length)) else {
            return;
        };
        each(field);
        message = rest;
    }
}

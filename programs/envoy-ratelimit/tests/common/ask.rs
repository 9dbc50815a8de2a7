//! Requests of the protocol, and what comes back, in short.

use std::net::SocketAddr;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3 as rls;
use envoy_types::pb::google::protobuf::UInt64Value;
use rls::rate_limit_response::DescriptorStatus;
use rls::rate_limit_service_client::RateLimitServiceClient;
use rls::{RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

pub type Client = RateLimitServiceClient<Channel>;

/// A client of the service.
pub fn client(address: SocketAddr) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    RateLimitServiceClient::new(endpoint.connect_lazy())
}

/// `a=b,c=d`, then `+5` for hits of its own or `~5` for negative ones, and `@10/4` for a limit of
/// its own: ten an unit of 4.
pub fn descriptor(text: &str) -> RateLimitDescriptor {
    let (text, limit) = match text.split_once('@') {
        Some((text, limit)) => (text, Some(limit.split_once('/').expect("a unit"))),
        None => (text, None),
    };
    let is_negative_hits = text.contains('~');
    let (text, hits) = match text.split_once(['+', '~']) {
        Some((text, hits)) => (text, Some(hits.parse().expect("hits"))),
        None => (text, None),
    };
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    RateLimitDescriptor {
        entries: text.split(',').map(entry).collect(),
        hits_addend: hits.map(|value| UInt64Value { value }),
        limit: limit.map(|(requests, unit)| RateLimitOverride {
            requests_per_unit: requests.parse().expect("a number"),
            unit: unit.parse().expect("a unit"),
        }),
        is_negative_hits,
    }
}

/// A request about a domain, in descriptors as [`descriptor`] reads them, of so many hits.
pub fn about(domain: &str, descriptors: &[&str], hits_addend: u32) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|one| descriptor(one)).collect();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend }
}

/// The whole answer.
pub async fn ask(client: &Client, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    Ok(client.clone().should_rate_limit(request).await?.into_inner())
}

/// `OK: OK 3, OVER 0 ..`: the overall code, and each status with what remains.
pub fn short(response: &RateLimitResponse) -> String {
    let code = |code| match code {
        1 => "OK",
        2 => "OVER",
        _ => "?",
    };
    let status = |one: &DescriptorStatus| {
        let limit = if one.current_limit.is_none() { " free" } else { "" };
        format!("{} {}{limit}", code(one.code), one.limit_remaining)
    };
    let statuses: Vec<String> = response.statuses.iter().map(status).collect();
    format!("{}: {}", code(response.overall_code), statuses.join(", "))
}

/// Asks about the domain `x`, one hit, and returns the answer in short.
pub async fn x(client: &Client, descriptors: &[&str]) -> String {
    hits(client, descriptors, 0).await
}

/// The same, with so many hits.
pub async fn hits(client: &Client, descriptors: &[&str], hits: u32) -> String {
    short(&ask(client, about("x", descriptors, hits)).await.expect("an answer"))
}

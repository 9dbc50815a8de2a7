//! Forwards a request to the upstream, and its answer to the caller. Bodies stream both ways.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, EXPECT, FORWARDED, UPGRADE};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use ipnet::IpNet;

use crate::bill::Bill;
use crate::body::Body;
use crate::built_in::status;
use crate::client::{Client, ForwardFailure, is_grpc};
use crate::http2::Own;
use crate::settings::Settings;
use crate::{forwarded, hop_by_hop, tunnel};
use serving::log::Log;
use serving::port::Exchange;
use serving::port::Running;
use serving::port::Sent;
use serving::port::now;

static FAILED: Log = Log::new();

/// Forwards to the upstream.
pub(crate) struct Proxy {
    client: Client,
    upstream: Authority,
    trusted: Vec<IpNet>,
    always_forwarded: bool,
    timeout: Duration,
    running: Running,
}

impl Proxy {
    /// One that has this client of the host `upstream`.
    pub(crate) fn new(
        client: Client,
        upstream: Authority,
        settings: &Settings,
        running: Running,
    ) -> Self {
        Self {
            client,
            upstream,
            trusted: settings.trusted.clone(),
            always_forwarded: settings.forwarded == FORWARDED,
            timeout: settings.upstream_timeout,
            running,
        }
    }

    /// Answers 502 where the upstream cannot be reached or breaks off, 504 where it does not answer
    /// in time, and 400 where the caller's body breaks off.
    pub(crate) async fn forward(
        &self,
        mut request: Request<Sent>,
        bill: &mut Option<Bill>,
    ) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return status(StatusCode::METHOD_NOT_ALLOWED, "this is no forward proxy\n");
        }
        let by_http2 = self.client.is_by_http2(&request);
        // HTTP/2 changes no connection.
        let protocol = hop_by_hop::upgrade(request.headers()).filter(|_| !by_http2);
        let caller = protocol.as_ref().map(|_| hyper::upgrade::on(&mut request));
        let exchange = Arc::clone(request.body().exchange());
        let is_grpc = request.version() == Version::HTTP_2 && is_grpc(&request);
        let (request, asked) = (self.rewrite(request, protocol, is_grpc && by_http2), now());
        if is_grpc {
            exchange.may_be_slow();
        }
        let answer = tokio::select! {
            biased;
            answer = self.client.send(request, by_http2, asked) => answer,
            () = exchange.upstream_is_overdue(self.timeout) => Err(ForwardFailure::Late),
        };
        let (code, why) = match answer {
            Ok(response) => {
                if is_grpc {
                    exchange.may_be_quiet();
                }
                return self.answer(response, caller, exchange, bill);
            }
            // The port answers a caller that was given up.
            Err(_) if exchange.is_given_up() => {
                return status(StatusCode::REQUEST_TIMEOUT, Body::default());
            }
            Err(ForwardFailure::Caller) => {
                return status(StatusCode::BAD_REQUEST, "the body broke off\n");
            }
            Err(ForwardFailure::Upstream(why)) => (StatusCode::BAD_GATEWAY, why),
            Err(ForwardFailure::Late) => {
                if by_http2 {
                    exchange.caller.own::<Own>().is_late(asked);
                }
                let why = format!("has not answered within {:?}", self.timeout);
                (StatusCode::GATEWAY_TIMEOUT, why)
            }
        };
        FAILED.say(|| format!("{} {why}", self.upstream));
        match is_grpc {
            true => unavailable(),
            false => status(code, "the upstream does not answer\n"),
        }
    }

    /// The request as the upstream sees it, but for its target.
    fn rewrite(
        &self,
        request: Request<Sent>,
        protocol: Option<HeaderValue>,
        is_grpc: bool,
    ) -> Request<Sent> {
        let (mut head, mut body) = request.into_parts();
        body.change_trailers(forwarded::remove_from_trailers);
        hop_by_hop::remove(&mut head.headers);
        // The caller has its `100 Continue` from here, once the body is read.
        head.headers.remove(EXPECT);
        let peer = &body.exchange().caller.peer;
        let trusted = self.trusted.iter().any(|network| network.contains(&peer.address));
        let (fields, forms) = (&mut head.headers, (self.always_forwarded, is_grpc));
        forwarded::add(fields, &head.uri, head.version, peer, trusted, forms);
        if let Some(protocol) = protocol {
            hop_by_hop::set_upgrade(&mut head.headers, protocol);
        }
        let mut forwarded = Request::new(body);
        *forwarded.method_mut() = head.method;
        *forwarded.uri_mut() = head.uri;
        *forwarded.headers_mut() = head.headers;
        forwarded
    }

    /// The upstream's answer as the caller sees it.
    fn answer(
        &self,
        mut response: Response<Body>,
        caller: Option<OnUpgrade>,
        exchange: Arc<Exchange>,
        bill: &mut Option<Bill>,
    ) -> Response<Body> {
        let protocol = hop_by_hop::upgrade(response.headers());
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let upstream = switches.then(|| hyper::upgrade::on(&mut response));
        let wanted = response.headers().get(UPGRADE).cloned();
        hop_by_hop::remove(response.headers_mut());
        // The protocol that the upstream asks for.
        if let (StatusCode::UPGRADE_REQUIRED, Some(wanted)) = (response.status(), wanted) {
            response.headers_mut().insert(UPGRADE, wanted);
        }
        match (upstream, caller, protocol) {
            (Some(upstream), Some(caller), Some(protocol)) => {
                hop_by_hop::set_upgrade(response.headers_mut(), protocol);
                tunnel::open(caller, upstream, exchange, bill.take(), &self.running);
                response
            }
            (Some(_), ..) => status(StatusCode::BAD_GATEWAY, "nobody asked for an upgrade\n"),
            (None, ..) => {
                // As the caller's own connection speaks, not as the upstream's does.
                *response.version_mut() = Version::HTTP_11;
                response
            }
        }
    }
}

/// Makes the answer that a caller of gRPC reads where others read a 502.
fn unavailable() -> Response<Body> {
    let mut response = Response::new(Body::default());
    let fields = [
        (CONTENT_TYPE.as_str(), "application/grpc"),
        ("grpc-status", "14"),
        ("grpc-message", "the upstream does not answer"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

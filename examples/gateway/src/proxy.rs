//! Forwards a request to the upstream, and its answer to the caller. Bodies stream both ways.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::header::{EXPECT, FORWARDED};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::upgrade::OnUpgrade;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ipnet::IpNet;
use rustls::{ClientConfig, RootCertStore};

use crate::built_in::status;
use crate::lingering::Tunnel;
use crate::running::Running;
use crate::settings::{Settings, Upstream};
use crate::{forwarded, hop_by_hop, tunnel};

/// How long a connection to the upstream may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Shorter than upstreams keep idle connections, so that few requests meet one that just closes.
const IDLE: Duration = Duration::from_secs(4);

/// A client of the upstream.
pub(crate) struct Proxy {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    upstream: Upstream,
    trusted: Vec<IpNet>,
    always_forwarded: bool,
    running: Running,
}

impl Proxy {
    pub(crate) fn new(
        upstream: &Upstream,
        settings: &Settings,
        running: Running,
    ) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(upstream)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self {
            client,
            upstream: upstream.clone(),
            trusted: settings.trusted.clone(),
            always_forwarded: settings.forwarded == FORWARDED,
            running,
        })
    }

    /// Answers 502 where the upstream does not answer.
    pub(crate) async fn forward(&self, mut request: Request<Body>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return status(StatusCode::METHOD_NOT_ALLOWED, "this is no forward proxy\n");
        }
        let protocol = hop_by_hop::upgrade(request.headers());
        let caller = protocol.as_ref().map(|_| hyper::upgrade::on(&mut request));
        let tunnel = request.extensions_mut().remove::<Tunnel>();
        let request = match self.rewrite(request) {
            Ok(request) => request,
            Err(error) => return status(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        match self.client.request(request).await {
            Ok(response) => self.answer(response.map(Body::new), caller, tunnel),
            Err(error) => {
                eprintln!("gateway: {} {}", self.upstream.authority, causes(&error));
                status(StatusCode::BAD_GATEWAY, "the upstream does not answer\n")
            }
        }
    }

    /// The request as the upstream sees it.
    fn rewrite(&self, request: Request<Body>) -> Result<Request<Body>, http::Error> {
        let (mut head, body) = request.into_parts();
        let protocol = hop_by_hop::upgrade(&head.headers);
        hop_by_hop::remove(&mut head.headers);
        // The caller has its `100 Continue` from here, once the body is read.
        head.headers.remove(EXPECT);
        if let Some(ConnectInfo(peer)) = head.extensions.get::<ConnectInfo<SocketAddr>>() {
            let address = peer.ip().to_canonical();
            let trusted = self.trusted.iter().any(|network| network.contains(&address));
            forwarded::add(&mut head.headers, &head.uri, *peer, trusted, self.always_forwarded);
        }
        if let Some(protocol) = protocol {
            hop_by_hop::set_upgrade(&mut head.headers, protocol);
        }

        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let target = format!("{}{target}", self.upstream.base);
        let uri = Uri::builder()
            .scheme(self.upstream.scheme.clone())
            .authority(self.upstream.authority.clone())
            .path_and_query(target)
            .build()?;
        let mut forwarded = Request::new(body);
        *forwarded.method_mut() = head.method;
        *forwarded.uri_mut() = uri;
        *forwarded.version_mut() = Version::HTTP_11;
        *forwarded.headers_mut() = head.headers;
        Ok(forwarded)
    }

    /// The upstream's answer as the caller sees it.
    fn answer(
        &self,
        mut response: Response<Body>,
        caller: Option<OnUpgrade>,
        tunnel: Option<Tunnel>,
    ) -> Response<Body> {
        let protocol = hop_by_hop::upgrade(response.headers());
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let upstream = switches.then(|| hyper::upgrade::on(&mut response));
        hop_by_hop::remove(response.headers_mut());
        match (upstream, caller, protocol) {
            (Some(upstream), Some(caller), Some(protocol)) => {
                hop_by_hop::set_upgrade(response.headers_mut(), protocol);
                tunnel::open(caller, upstream, tunnel, &self.running);
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

/// The system's authorities, where they are needed.
fn tls(upstream: &Upstream) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder();
    let config = match upstream.scheme.as_str() {
        "https" => config
            .with_native_roots()
            .map_err(|error| format!("the system's certificates cannot be read: {error}"))?,
        _ => config.with_root_certificates(RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

/// An error with its causes, in one line.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

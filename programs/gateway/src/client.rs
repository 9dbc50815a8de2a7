//! The client of the upstream: which version of HTTP a request is forwarded in, and over what.
//!
//! | `UPSTREAM` | a gRPC request that came by HTTP/2 | every other request |
//! |---|---|---|
//! | `http://` | HTTP/2 without an upgrade | HTTP/1.1 |
//! | `https://` | HTTP/2 over TLS | HTTP/1.1 over TLS |
//! | `h2c://` | HTTP/2 without an upgrade | the same |

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderMap};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};

use crate::body::{Body, Source};
use crate::bounded::Room;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::settings::Upstream;
use serving::causes::causes;
use serving::port::Sent;

/// The time that a connection to the upstream may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a connection is silent before it is asked whether the upstream is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Opens clients of the upstream, one for each worker. They share the bound of the connections of
/// HTTP/1.1.
pub(crate) struct Clients {
    upstream: Upstream,
    target: Uri,
    /// Of requests that have none.
    host: HeaderValue,
    connector: HttpConnector,
    room: Arc<Room>,
    tls: Arc<ClientConfig>,
    two: Arc<Http2>,
}

/// Sends requests to the upstream.
pub(crate) struct Client {
    upstream: Upstream,
    host: HeaderValue,
    one: Http1,
    two: Arc<Http2>,
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(crate) enum ForwardFailure {
    /// The caller broke off, or sent what is no HTTP.
    Caller,
    Upstream(String),
    /// The upstream takes too long.
    Late,
}

impl Clients {
    /// Clients that have at most so many connections together.
    pub(crate) fn new(upstream: &Upstream, max_connections: usize) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEP_ALIVE));
        let room = Room::new(max_connections);
        let tls = tls(upstream)?;
        let target = uri(upstream, upstream.authority.clone(), "/").map_err(|e| e.to_string())?;
        let host = HeaderValue::from_str(&host_field(&target)).map_err(|e| e.to_string())?;
        let two = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        let two = two.enable_http2().wrap_connector(connector.clone());
        let two = Arc::new(Http2::new(two, target.clone()));
        let (upstream, tls) = (upstream.clone(), Arc::new(tls));
        Ok(Self { upstream, target, host, connector, room, tls, two })
    }

    /// The client of one more worker.
    pub(crate) fn open(&self) -> Client {
        let (connector, tls) = (self.connector.clone(), Arc::clone(&self.tls));
        let one = Http1::new(connector, tls, self.target.clone(), &self.room);
        let (upstream, host) = (self.upstream.clone(), self.host.clone());
        Client { upstream, host, one, two: Arc::clone(&self.two) }
    }
}

impl Client {
    /// Returns true if a request, as the caller sent it, is forwarded by HTTP/2.
    pub(crate) fn is_by_http2<B>(&self, request: &Request<B>) -> bool {
        self.upstream.by_http2 || (request.version() == Version::HTTP_2 && is_grpc(request))
    }

    /// Sends a request, whose target is the caller's yet.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
        by_http2: bool,
        asked_at: u64,
    ) -> Result<Response<Body>, ForwardFailure> {
        let wrong = |error: http::Error| ForwardFailure::Upstream(error.to_string());
        if by_http2 {
            let authority = host(&mut request).unwrap_or_else(|| self.upstream.authority.clone());
            let target = self.target(request.uri());
            *request.uri_mut() = uri(&self.upstream, authority, &target).map_err(wrong)?;
            *request.version_mut() = Version::HTTP_2;
            let answer = Box::pin(self.two.send(request, asked_at)).await;
            return answer
                .map(|answer| answer.map(|body| Source::Two(body).into()))
                .map_err(|error| failure(&*error));
        }
        // Most targets are a path already.
        if !self.upstream.base.is_empty() || request.uri().authority().is_some() {
            let target = Uri::builder().path_and_query(self.target(request.uri())).build();
            *request.uri_mut() = target.map_err(wrong)?;
        }
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        join_cookies(headers);
        headers.entry(HOST).or_insert_with(|| self.host.clone());
        let answer = self.one.send(request).await;
        answer
            .map(|answer| answer.map(|body| Source::One(body).into()))
            .map_err(|error| failure(&*error))
    }

    /// The path and the query at the upstream.
    fn target(&self, uri: &Uri) -> String {
        let base = &self.upstream.base;
        match uri.path_and_query().map_or("/", PathAndQuery::as_str) {
            // The server as a whole.
            "*" if base.is_empty() => "*".to_owned(),
            "*" => base.clone(),
            target => format!("{base}{target}"),
        }
    }
}

/// The field `Host` of a target: without a port that is the scheme's own.
fn host_field(target: &Uri) -> String {
    let host = target.host().unwrap_or_default();
    match (target.port_u16(), target.scheme_str()) {
        (None, _) | (Some(80), Some("http")) | (Some(443), Some("https")) => host.to_owned(),
        (Some(port), _) => format!("{host}:{port}"),
    }
}

/// Returns true if a request is gRPC, which needs HTTP/2. That of browsers does not.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    let parts = kind.and_then(|kind| kind.split_at_checked(GRPC.len()));
    // An answer of gRPC has the status 200, which caches keep of other methods.
    let is_call = request.method() == Method::POST;
    is_call
        && parts.is_some_and(|(kind, rest)| {
            kind.eq_ignore_ascii_case(GRPC) && matches!(rest, [] | [b'+' | b';', ..])
        })
}

/// Makes one field of the cookies, which HTTP/2 may send one by one (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    let (Some(_), Some(_)) = (crumbs.next(), crumbs.next()) else { return };
    let crumbs: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(cookies) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, cookies);
    }
}

/// Takes the field `Host`, which HTTP/2 has as a part of the target.
fn host(request: &mut Request<Sent>) -> Option<Authority> {
    let host = request.headers_mut().remove(HOST)?;
    host.to_str().ok()?.parse().ok()
}

fn uri(upstream: &Upstream, authority: Authority, target: &str) -> Result<Uri, http::Error> {
    let uri = Uri::builder().scheme(upstream.scheme.clone()).authority(authority);
    uri.path_and_query(target).build()
}

/// The system's authorities, or those that `SSL_CERT_FILE` names, where they are needed.
fn tls(upstream: &Upstream) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder();
    let config = match upstream.scheme.as_str() {
        "https" => config
            .with_native_roots()
            .map_err(|error| format!("UPSTREAM: certificates cannot be read: {error}"))?,
        _ => config.with_root_certificates(RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

/// The one at fault: an error of the body that the caller sends is the caller's.
fn failure(error: &(dyn Error + 'static)) -> ForwardFailure {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_user) {
            return ForwardFailure::Caller;
        }
        cause = error.source();
    }
    ForwardFailure::Upstream(causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_known_by_its_content_type_and_its_method() {
        let of = |method, kind| {
            let request = Request::builder().method(method).header(CONTENT_TYPE, kind);
            is_grpc(&request.body(()).unwrap())
        };
        let is = |kind| of(Method::POST, kind);
        assert!(!of(Method::GET, "application/grpc") && !of(Method::PUT, "application/grpc"));
        for kind in ["application/grpc", "Application/gRPC+proto", "application/grpc;x=1"] {
            assert!(is(kind), "{kind}");
        }
        for kind in ["application/grpc-web", "application/grpcx", "application/json", ""] {
            assert!(!is(kind), "{kind}");
        }
        assert!(!is_grpc(&Request::new(())));
    }
}

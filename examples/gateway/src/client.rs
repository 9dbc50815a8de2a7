//! The client of the upstream: which version of HTTP a request is forwarded in, and over what.
//!
//! | `UPSTREAM` | a gRPC request that came by HTTP/2 | every other request |
//! |---|---|---|
//! | `http://` | HTTP/2 without an upgrade | HTTP/1.1 |
//! | `https://` | HTTP/2 over TLS | HTTP/1.1 over TLS |
//! | `h2c://` | HTTP/2 without an upgrade | the same |

use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderMap};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as PooledClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

use crate::bounded::Bounded;
use crate::causes::causes;
use crate::http2::Http2;
use crate::settings::Upstream;

/// How long a connection to the upstream may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Shorter than upstreams keep idle connections, so that few requests meet one that just closes.
const IDLE: Duration = Duration::from_secs(4);
/// How long a connection is silent before it is asked whether the upstream is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Sends requests to the upstream.
pub(crate) struct Client {
    upstream: Upstream,
    one: PooledClient<HttpsConnector<Bounded>, Body>,
    two: Http2,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller broke off, or sent what is no HTTP.
    Caller,
    Upstream(String),
    /// The upstream takes too long.
    Late,
}

impl Client {
    /// A client that has at most so many connections.
    pub(crate) fn new(upstream: &Upstream, max_connections: usize) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEP_ALIVE));
        let connector = Bounded::new(connector, max_connections);
        let tls = tls(upstream)?;
        let builder = || HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        let one = builder().enable_http1().wrap_connector(connector.clone());
        let one = PooledClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(one);
        let target = uri(upstream, upstream.authority.clone(), "/").map_err(|e| e.to_string())?;
        let two = Http2::new(builder().enable_http2().wrap_connector(connector), target);
        Ok(Self { upstream: upstream.clone(), one, two })
    }

    /// Whether a request, as the caller sent it, is forwarded by HTTP/2.
    pub(crate) fn is_by_http2<B>(&self, request: &Request<B>) -> bool {
        self.upstream.by_http2 || (request.version() == Version::HTTP_2 && is_grpc(request))
    }

    /// Sends a request, whose target is a path yet.
    pub(crate) async fn send(
        &self,
        mut request: Request<Body>,
        by_http2: bool,
    ) -> Result<Response<Body>, Failure> {
        let target = self.target(request.uri());
        let authority = if by_http2 { host(&mut request) } else { None };
        let authority = authority.unwrap_or_else(|| self.upstream.authority.clone());
        *request.uri_mut() = uri(&self.upstream, authority, &target)
            .map_err(|error| Failure::Upstream(error.to_string()))?;
        let answer = if by_http2 {
            *request.version_mut() = Version::HTTP_2;
            self.two.send(request).await
        } else {
            *request.version_mut() = Version::HTTP_11;
            join_cookies(request.headers_mut());
            self.one.request(request).await.map_err(Into::into)
        };
        answer.map(|response| response.map(Body::new)).map_err(|error| failure(&*error))
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

/// Whether a request is gRPC, which needs HTTP/2. That of browsers does not.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    let parts = kind.and_then(|kind| kind.split_at_checked(GRPC.len()));
    parts.is_some_and(|(kind, rest)| {
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
fn host(request: &mut Request<Body>) -> Option<Authority> {
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

/// Whose fault it is: an error of the body that the caller sends is the caller's.
fn failure(error: &(dyn Error + 'static)) -> Failure {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_user) {
            return Failure::Caller;
        }
        cause = error.source();
    }
    Failure::Upstream(causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let is = |kind| is_grpc(&Request::builder().header(CONTENT_TYPE, kind).body(()).unwrap());
        for kind in ["application/grpc", "Application/gRPC+proto", "application/grpc;x=1"] {
            assert!(is(kind), "{kind}");
        }
        for kind in ["application/grpc-web", "application/grpcx", "application/json", ""] {
            assert!(!is(kind), "{kind}");
        }
        assert!(!is_grpc(&Request::new(())));
    }
}

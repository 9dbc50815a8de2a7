//! What the upstream learns about the caller.
//!
//! | field | value |
//! |---|---|
//! | `X-Forwarded-For` | the peer's address, appended |
//! | `Forwarded` | `for`, `host` and `proto`, appended where it is there or `FORWARDED=forwarded` |
//! | `X-Forwarded-Host`, `X-Forwarded-Proto` | the caller's, unless a trusted proxy has set them |
//! | `Via` | the version of the caller's HTTP and `gateway`, as in `1.1 gateway`, appended |
//! | `Host` | the caller's |
//!
//! Appending says nothing about what stood there before: an upstream reads from the right, past the
//! addresses that it trusts.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HOST, HeaderName, VIA};
use http::{HeaderMap, HeaderValue, Uri, Version};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Adds them to `headers`. `uri` is the target as the caller sent it, in this version of HTTP.
pub(crate) fn add(
    headers: &mut HeaderMap,
    uri: &Uri,
    version: Version,
    peer: SocketAddr,
    peer_is_trusted: bool,
    always_forwarded: bool,
) {
    // A target with a host outweighs the field `Host`, and HTTP/2 has no such field.
    let host = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    let host = headers.get(HOST).cloned();
    let address = peer.ip().to_canonical();

    if always_forwarded || headers.contains_key(FORWARDED) {
        append(headers, FORWARDED, &element(address, host.as_ref()));
    }
    append(headers, X_FORWARDED_FOR, &address.to_string());
    let via = match version {
        Version::HTTP_10 => "1.0 gateway",
        Version::HTTP_2 => "2 gateway",
        _ => "1.1 gateway",
    };
    append(headers, VIA, via);
    if !(peer_is_trusted && headers.contains_key(X_FORWARDED_PROTO)) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if !(peer_is_trusted && headers.contains_key(X_FORWARDED_HOST)) {
        match host {
            Some(host) => headers.insert(X_FORWARDED_HOST, host),
            None => headers.remove(X_FORWARDED_HOST),
        };
    }
}

/// Adds an element to a list: one line more.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    if let Ok(value) = HeaderValue::from_str(element) {
        headers.append(name, value);
    }
}

/// An element of `Forwarded` (RFC 7239).
fn element(address: IpAddr, host: Option<&HeaderValue>) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let host = host.and_then(|host| host.to_str().ok());
    // A host with a quote is none.
    match host.filter(|host| !host.contains(['"', '\\'])) {
        Some(host) => format!("for={address};host=\"{host}\";proto=http"),
        None => format!("for={address};proto=http"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(headers: &mut HeaderMap, peer: &str, trusted: bool, always: bool) {
        let (uri, peer) = (Uri::from_static("/x"), peer.parse().unwrap());
        add(headers, &uri, Version::HTTP_11, peer, trusted, always);
    }

    #[test]
    fn the_peer_is_appended() {
        let mut headers = HeaderMap::new();
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("1.2.3.4"));
        headers.insert(HOST, HeaderValue::from_static("example.com"));
        added(&mut headers, "[::ffff:10.0.0.9]:5000", false, false);
        let all: Vec<_> = headers.get_all(X_FORWARDED_FOR).iter().collect();
        assert_eq!(all, ["1.2.3.4", "10.0.0.9"]);
        assert_eq!(headers[X_FORWARDED_HOST], "example.com");
        assert_eq!(headers.get(FORWARDED), None);
    }

    #[test]
    fn an_address_of_version_6_is_quoted() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("example.com:80"));
        added(&mut headers, "[2001:db8::1]:5000", false, true);
        let expected = "for=\"[2001:db8::1]\";host=\"example.com:80\";proto=http";
        assert_eq!(headers[FORWARDED], expected);
    }

    #[test]
    fn only_a_trusted_proxy_says_how_it_was_asked() {
        for (trusted, proto) in [(true, "https"), (false, "http")] {
            let mut headers = HeaderMap::new();
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
            added(&mut headers, "10.0.0.1:5000", trusted, false);
            assert_eq!(headers[X_FORWARDED_PROTO], proto);
        }
    }
}

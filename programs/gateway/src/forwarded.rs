//! The fields that tell the upstream about the caller.
//!
//! | field | value |
//! |---|---|
//! | `X-Forwarded-For` | the peer's address, appended |
//! | `Forwarded` | `for`, `host` and `proto`, appended where it is there or `FORWARDED=forwarded` |
//! | `X-Forwarded-Host`, `X-Forwarded-Proto` | the caller's, unless a trusted proxy has set them |
//! | `X-Real-IP` and others that only a proxy may set | removed, unless a trusted proxy set them |
//! | `Proxy`, and names of more than letters, digits and `-` | removed, the latter not of gRPC |
//! | `Via` | the version of the caller's HTTP and `gateway`, as in `1.1 gateway`, appended |
//! | `Host` | the caller's |
//!
//! Appending says nothing about what stood there before: an upstream reads from the right, past the
//! addresses that it trusts.
//!
//! Servers of CGI and of WSGI read `_` in a name as `-`, some also `.` and `+`. A caller could send
//! `x_api_key` beside the `x-api-key` by which it is limited, and such a server may take the other
//! one. Servers of gRPC read each name as it is.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{CONTENT_LENGTH, FORWARDED, HOST, HeaderName, VIA};
use http::{HeaderMap, HeaderValue, Uri, Version};

use crate::hop_by_hop;
use serving::port::Peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// No proxy sets it, and programs of CGI take it for the proxy of their own requests
/// (CVE-2016-5385).
const PROXY: HeaderName = HeaderName::from_static("proxy");

/// Adds them to `headers`. `uri` is the target as the caller sent it, in this version of HTTP.
pub(crate) fn add(
    headers: &mut HeaderMap,
    uri: &Uri,
    version: Version,
    peer: &Peer,
    peer_is_trusted: bool,
    (always_forwarded, is_grpc): (bool, bool),
) {
    let is_removed = |name: &HeaderName, headers: &HeaderMap| {
        let plain = plain(name);
        let is_odd = plain != name.as_str();
        let is_double = || {
            is_claim(&plain)
                || is_own(&plain)
                || hop_by_hop::is_of_connection(&plain)
                || headers.contains_key(&*plain)
        };
        // Few proxies set such names, so even a trusted one may pass its caller's.
        name == PROXY || is_odd && (!is_grpc || is_double()) || is_claim(&plain) && !peer_is_trusted
    };
    remove(headers, is_removed);
    // A target with a host outweighs the field `Host`, and HTTP/2 has no such field.
    let host = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    let host = headers.get(HOST).cloned();

    if always_forwarded || headers.contains_key(FORWARDED) {
        headers.append(FORWARDED, element(peer.address, host.as_ref()));
    }
    headers.append(X_FORWARDED_FOR, peer.text.clone());
    let via = match version {
        Version::HTTP_10 => "1.0 gateway",
        Version::HTTP_2 => "2 gateway",
        _ => "1.1 gateway",
    };
    headers.append(VIA, HeaderValue::from_static(via));
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

fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName, &HeaderMap) -> bool) {
    let removed: Vec<HeaderName> =
        headers.keys().filter(|name| is_removed(name, headers)).cloned().collect();
    removed.iter().for_each(|name| drop(headers.remove(name)));
}

/// Returns a name as some servers read it: with `-` for all but letters and digits.
fn plain(name: &HeaderName) -> Cow<'_, str> {
    let is_odd = |byte: char| !byte.is_ascii_alphanumeric() && byte != '-';
    match name.as_str() {
        name if name.contains(is_odd) => name.replace(is_odd, "-").into(),
        name => name.into(),
    }
}

/// Returns true for the fields that the gateway or HTTP sets.
fn is_own(text: &str) -> bool {
    let own = [X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, FORWARDED, VIA];
    own.iter().any(|own| text == own) || text == CONTENT_LENGTH || text == HOST
}

/// Returns true if only a proxy may set a field: upstreams believe it about the caller or its
/// request.
fn is_claim(text: &str) -> bool {
    matches!(
        text,
        "x-real-ip"
            | "x-client-ip"
            | "x-cluster-client-ip"
            | "x-original-forwarded-for"
            | "x-originating-ip"
            | "x-remote-addr"
            | "x-remote-ip"
            | "true-client-ip"
            | "cf-connecting-ip"
            | "cf-connecting-ipv6"
            | "fastly-client-ip"
            | "fly-client-ip"
            | "x-appengine-user-ip"
            | "x-azure-clientip"
            | "x-envoy-external-address"
            | "x-envoy-internal"
            | "x-host"
            | "x-original-host"
            | "x-original-url"
            | "x-rewrite-url"
            | "x-url-scheme"
            | "front-end-https"
            | "client-ip"
    ) || text.starts_with("x-forwarded-") && !is_own(text)
}

/// Removes from trailers what says where a message came from, or how it is to be read: a reader
/// that joins them with the head would believe it.
pub(crate) fn remove_from_trailers(trailers: &mut HeaderMap) {
    hop_by_hop::remove(trailers);
    remove(trailers, |name, _| {
        let plain = plain(name);
        let is_odd = plain != name.as_str();
        name == PROXY || is_odd || is_claim(&plain) || hop_by_hop::is_for_all(name)
    });
}

/// An element of `Forwarded` (RFC 7239).
fn element(address: IpAddr, host: Option<&HeaderValue>) -> HeaderValue {
    let address = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let host = host.and_then(|host| host.to_str().ok());
    // A host with a quote is none.
    let element = match host.filter(|host| !host.contains(['"', '\\'])) {
        Some(host) => format!("for={address};host=\"{host}\";proto=http"),
        None => format!("for={address};proto=http"),
    };
    HeaderValue::try_from(element).expect("an address and a host are of visible letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_call_keeps_its_own_names() {
        let mut headers = HeaderMap::new();
        for name in ["tenant_id", "x-key", "x_key", "x_real_ip", "x_forwarded_for", "a.b"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        let (uri, peer) = (Uri::from_static("/x"), Peer::new("10.0.0.1:5000".parse().unwrap()));
        add(&mut headers, &uri, Version::HTTP_2, &peer, true, (false, true));
        for (name, is_kept) in
            [("tenant_id", true), ("x-key", true), ("x_key", false), ("a.b", true)]
        {
            assert_eq!(headers.contains_key(name), is_kept, "{name}");
        }
        assert!(!headers.contains_key("x_real_ip") && !headers.contains_key("x_forwarded_for"));
    }

    fn added(headers: &mut HeaderMap, peer: &str, trusted: bool, always: bool) {
        let (uri, peer) = (Uri::from_static("/x"), Peer::new(peer.parse().unwrap()));
        add(headers, &uri, Version::HTTP_11, &peer, trusted, (always, false));
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

    #[test]
    fn only_a_trusted_proxy_says_who_asks() {
        for (trusted, left) in [(true, true), (false, false)] {
            let mut headers = HeaderMap::new();
            for name in ["x-real-ip", "cf-connecting-ip", "x-forwarded-port", "x-original-url"] {
                headers.insert(name, HeaderValue::from_static("1"));
            }
            for name in ["x_real_ip", "x.forwarded.for", "x-forwarded_proto", "x_mine", "proxy"] {
                headers.insert(name, HeaderValue::from_static("1"));
            }
            headers.insert("x-mine", HeaderValue::from_static("1"));
            added(&mut headers, "10.0.0.1:5000", trusted, false);
            for name in ["x_real_ip", "x.forwarded.for", "x-forwarded_proto", "x_mine", "proxy"] {
                assert!(!headers.contains_key(name), "{name}: no proxy has set it");
            }
            assert_eq!(headers.contains_key("x-real-ip"), left);
            assert_eq!(headers.contains_key("cf-connecting-ip"), left);
            assert_eq!(headers.contains_key("x-forwarded-port"), left);
            assert_eq!(headers.contains_key("x-original-url"), left);
            assert!(headers.contains_key("x-mine"));
        }
    }

    #[test]
    fn trailers_say_nothing_about_the_caller() {
        let mut trailers = HeaderMap::new();
        for name in [
            "x-forwarded-for",
            "x_forwarded_for",
            "forwarded",
            "via",
            "host",
            "content-length",
            "x-real-ip",
            "proxy",
        ] {
            trailers.insert(name, HeaderValue::from_static("1"));
        }
        trailers.insert("x-sum", HeaderValue::from_static("2"));
        remove_from_trailers(&mut trailers);
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-sum"]);
    }
}

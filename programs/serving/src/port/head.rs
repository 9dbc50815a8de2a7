//! Requests that name no target, or several: refused before anything is decided.
//!
//! Two readers of such a head may read two requests, or two hosts, and a limit holds for one of
//! them (RFC 9112, sections 3.2 and 6.1).

use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, StatusCode, Version};

/// The status of the refusal and its reason; none if the head can be read in one way only.
/// `has_two_framings`: it states a length beside a transfer coding, even if the length was removed
/// from the request since.
pub(crate) fn wrong<B>(
    request: &Request<B>,
    has_two_framings: bool,
) -> Option<(StatusCode, &'static str)> {
    let bad = |why| Some((StatusCode::BAD_REQUEST, why));
    let (target, headers) = (request.uri(), request.headers());
    if target.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return bad("the target names a user\n");
    }
    if target.scheme().is_none()
        && target.authority().is_some()
        && *request.method() != Method::CONNECT
    {
        return bad("the target has no path\n");
    }
    // The server as a whole. A base would make a path of it that no policy sees.
    if target.path() == "*" && *request.method() != Method::OPTIONS {
        return bad("the target has no path\n");
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => return bad("there is no host\n"),
        (_, Some(_)) => return bad("there are several hosts\n"),
        (Some(host), None) if !is_host(host) => return bad("the host is no host\n"),
        _ => {}
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => None,
        (Some(_), _) if has_two_framings => bad("a length and a transfer coding\n"),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => None,
        // What is not decoded here would be forwarded as if it were plain.
        _ => Some((StatusCode::NOT_IMPLEMENTED, "the one transfer coding is chunked\n")),
    }
}

fn is_host(field: &HeaderValue) -> bool {
    // A name or an address of version 4, as most are, needs no parser.
    let mut parts = field.as_bytes().split(|byte| *byte == b':');
    let is_name = |part: &[u8]| {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
        !part.is_empty() && part.iter().all(is_part)
    };
    let is_number =
        |part: &[u8]| (1..=5).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
    if parts.next().is_some_and(is_name)
        && parts.next().is_none_or(is_number)
        && parts.next().is_none()
    {
        return true;
    }
    let text = field.to_str().unwrap_or("@");
    let host = text.parse::<Authority>().ok().filter(|_| !text.contains('@'));
    let port = host.as_ref().and_then(|host| text.strip_prefix(host.host()));
    let is_port = |port: &str| {
        let digits = port.strip_prefix(':').unwrap_or(port);
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.is_empty() || port.is_some_and(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status for a head; 200 for one that is right.
    fn status(version: Version, method: &str, target: &str, fields: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().version(version).method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        wrong(&request.body(()).unwrap(), false).map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn a_request_has_one_host() {
        let status = |version, fields: &[_]| status(version, "GET", "/", fields);
        for host in ["a", "", "a.example:80", "[::1]:80", "a_b"] {
            assert_eq!(status(Version::HTTP_11, &[("host", host)]), 200, "{host:?}");
        }
        for host in ["a b", "user@a", "a/b", "a:b", "é"] {
            assert_eq!(status(Version::HTTP_11, &[("host", host)]), 400, "{host:?}");
        }
        assert_eq!(status(Version::HTTP_11, &[]), 400);
        assert_eq!(status(Version::HTTP_10, &[]), 200);
        assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("host", "a")]), 400);
    }

    #[test]
    fn a_target_is_a_path_or_a_whole_address() {
        let host = [("host", "a")];
        let status = |method, target| status(Version::HTTP_11, method, target, &host);
        assert_eq!((status("OPTIONS", "*"), status("GET", "*")), (200, 400));
        for (method, target) in
            [("GET", "/"), ("GET", "http://b/x"), ("OPTIONS", "*"), ("CONNECT", "b:443")]
        {
            assert_eq!(status(method, target), 200, "{method} {target}");
        }
        for target in ["b:443", "b", "http://user:secret@b/x"] {
            assert_eq!(status("GET", target), 400, "{target}");
        }
    }

    #[test]
    fn only_chunks_are_decoded() {
        let status = |codings: &[&'static str]| {
            let mut fields = vec![("host", "a")];
            fields.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            status(Version::HTTP_11, "POST", "/", &fields)
        };
        assert_eq!((status(&[]), status(&["Chunked"])), (200, 200));
        for wrong in [&["gzip, chunked"][..], &["gzip", "chunked"], &["chunked", "chunked"]] {
            assert_eq!(status(wrong), 501, "{wrong:?}");
        }
    }
}

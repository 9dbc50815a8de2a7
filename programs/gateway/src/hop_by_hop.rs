//! Header fields that concern one connection, and are not forwarded (RFC 9110, section 7.6.1).

use http::HeaderValue;
use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderMap, HeaderName, TE, TRANSFER_ENCODING,
    UPGRADE, VIA,
};

/// Returns true if a field is removed whether or not `Connection` names it.
pub(crate) fn is_of_connection(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "keep-alive"
            | "http2-settings"
            | "proxy-connection"
    )
}

/// Removes them, and with them each field that `Connection` names. `Trailer` stays, since trailers
/// are forwarded.
pub(crate) fn remove(headers: &mut HeaderMap) {
    let mut found: Vec<HeaderName> =
        headers.keys().filter(|name| is_of_connection(name.as_str())).cloned().collect();
    // Most requests have none.
    if found.is_empty() {
        return;
    }
    // A length beside another framing is not to be believed.
    if found.contains(&TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let takes_trailers = found.contains(&TE)
        && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let named = tokens(headers, &CONNECTION)
        .filter(|token| {
            !["keep-alive", "close"].iter().any(|usual| token.eq_ignore_ascii_case(usual))
        })
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| !is_for_all(name));
    found.extend(named);
    for name in found {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Returns true if a field is for everybody on the way. A caller that named it in `Connection`
/// would hide from the upstream where the request is addressed, and where it came from.
pub(crate) fn is_for_all(name: &HeaderName) -> bool {
    [HOST, CONTENT_LENGTH, FORWARDED, VIA].contains(name)
        || name.as_str().starts_with("x-forwarded-")
}

/// The protocol to which a message changes its connection, if it does. Never one that carries HTTP:
/// its requests would pass without limits.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let carries_http = |protocol: &str| {
        // Drafts had names of their own, such as `h2c-17`, and SPDY came before them.
        let begins = |name: &str| {
            protocol.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        };
        ["h2", "h3", "http", "spdy", "tls"].into_iter().any(begins)
    };
    let upgrades = tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let is_text = headers.get_all(UPGRADE).iter().all(|line| line.to_str().is_ok());
    if !upgrades || !is_text || tokens(headers, &UPGRADE).any(carries_http) {
        return None;
    }
    Some(protocol.clone())
}

/// Writes the fields that [`remove`] took, for a message that changes its connection.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// The elements of a list, over all lines of a field.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn fields_of_the_connection_and_those_it_names_go() {
        let mut fields = headers(&[
            ("connection", "close, X-Hop, Host, X-Forwarded-For"),
            ("host", "a"),
            ("x-forwarded-for", "192.0.2.1"),
            ("trailer", "x-sum"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("x-end", "2"),
        ]);
        remove(&mut fields);
        let left = [
            ("host", "a"),
            ("x-forwarded-for", "192.0.2.1"),
            ("trailer", "x-sum"),
            ("te", "trailers"),
            ("x-end", "2"),
        ];
        assert_eq!(fields, headers(&left));
    }

    #[test]
    fn an_upgrade_needs_both_fields() {
        let both = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&both).unwrap(), "websocket");
        assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
        assert_eq!(upgrade(&headers(&[("connection", "upgrade")])), None);
        let mut other = headers(&[("connection", "upgrade")]);
        other.insert(UPGRADE, HeaderValue::from_bytes(b"h2c, \x80").unwrap());
        assert_eq!(upgrade(&other), None);
    }

    #[test]
    fn a_connection_never_changes_to_a_protocol_that_carries_requests() {
        for protocol in
            ["h2c", "H2C", "websocket, h2c", "h2c-17", "H2-16", "SPDY/3.1", "HTTP/2.0", "TLS/1.0"]
        {
            let fields =
                headers(&[("connection", "upgrade, http2-settings"), ("upgrade", protocol)]);
            assert_eq!(upgrade(&fields), None, "{protocol}");
        }
    }
}

//! A fuzzed function, whose bytes are a forwarded header from a client. `fuzz/` runs it too.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use tower_sluice::key::{ClientIp, Head, PeerAddr};

const PROXY: &str = "10.0.0.5:443";

/// Takes the bytes as lines of the header. For all bytes, the address that a trusted proxy appends
/// is read. Without a trusted proxy no header is read.
pub fn forwarded(bytes: &[u8]) {
    let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    // Servers do not pass on a value that the type rejects.
    let Ok(values) = lines.iter().map(|line| HeaderValue::from_bytes(line)).collect() else {
        return;
    };
    let values: Vec<HeaderValue> = values;
    for (name, appended, client) in [
        (HeaderName::from_static("x-forwarded-for"), "203.0.113.9", "203.0.113.9"),
        (HeaderName::from_static("x-forwarded-for"), "[2001:db8:1:2:3::9]:80", "2001:db8:1:2::/64"),
        (FORWARDED, "for=203.0.113.9;proto=https", "203.0.113.9"),
        (FORWARDED, r#"by="a,\"b";For="[2001:db8:1:2:3::9]:80""#, "2001:db8:1:2::/64"),
    ] {
        let trusting = ClientIp::new().header(name.clone());
        let trusting = trusting.try_trusted_networks("10.0.0.0/8").expect("a network");
        let hop = ClientIp::new().header(name.clone()).trusted_hops(1);

        let mut headers = HeaderMap::new();
        for value in &values {
            headers.append(name.clone(), value.clone());
        }
        // Any address is fine, but no panic.
        let _: IpAddr = client_of(&trusting, &headers).parse().unwrap_or([0; 4].into());
        assert_eq!(client_of(&ClientIp::new(), &headers), "10.0.0.5");

        let mut own_line = headers.clone();
        own_line.append(name.clone(), HeaderValue::from_static(appended));
        let mut same_line = headers;
        if let Some(last) = values.last() {
            let joined = [last.as_bytes(), b", ", appended.as_bytes()].concat();
            same_line.remove(&name);
            for value in &values[..values.len() - 1] {
                same_line.append(name.clone(), value.clone());
            }
            same_line.append(name, HeaderValue::from_bytes(&joined).expect("a value"));
        }
        for headers in [own_line, same_line] {
            for client_ip in [&trusting, &hop] {
                assert_eq!(client_of(client_ip, &headers), client);
            }
        }
    }
}

fn client_of(client_ip: &ClientIp, headers: &HeaderMap) -> String {
    let mut request = Request::new(());
    *request.headers_mut() = headers.clone();
    request.extensions_mut().insert(PeerAddr(PROXY.parse().expect("an address")));
    client_ip.of(Head::from(&request)).expect("a client").to_string()
}

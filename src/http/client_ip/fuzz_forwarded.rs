//! A fuzzed function, whose bytes are a forwarded header from a client.

#![cfg_attr(not(fuzzing), allow(unreachable_pub, reason = "they are public where they are fuzzed"))]

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::{ClientIp, PeerAddr};
use crate::http::Head;

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

#[cfg(test)]
mod tests {
    use super::forwarded;

    const SEEDS: [&str; 10] = [
        "1.2.3.4, 203.0.113.9, 10.0.0.7",
        "203.0.113.9\n10.0.0.7",
        "203.0.113.9, junk, 10.0.0.7",
        "::ffff:203.0.113.9, [2001:db8::1]:4711, fe80::1%eth0",
        ", ,,\t10.0.0.1:80,\n,",
        r#"for="[2001:db8:1:2:3::9]:4711";proto=https, for=10.0.0.7"#,
        r#"for=1.2.3.4;by=""#,
        r#"for="10.0.0.7\"#,
        r#"by="a,\"b\\";host="x;for=1.2.3.4", for=unknown, For="_hidden""#,
        "for=10.0.0.1,for=10.0.0.2,for=10.0.0.3;for=10.0.0.4",
    ];

    /// Makes an input from a seed: some bytes are changed, cut, doubled or added, mostly to bytes
    /// with a meaning.
    fn mutated(dice: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = SEEDS[dice.usize(..SEEDS.len())].as_bytes().to_vec();
        for _ in 0..dice.usize(..6) {
            let at = dice.usize(..=bytes.len());
            match dice.u8(..5) {
                0 => bytes.insert(at, *dice.choice(b"\"\\,;=: \n[]%\xff").expect("one")),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                3 => bytes.extend((0..dice.usize(..20)).map(|_| dice.u8(..))),
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = dice.u8(..);
                    }
                }
            }
        }
        bytes
    }

    #[test]
    fn no_bytes_of_a_client_change_what_a_trusted_proxy_appends() {
        let mut dice = fastrand::Rng::with_seed(0x5EED);
        let inputs = std::env::var("FUZZ_INPUTS").map_or(4_000, |n| n.parse().expect("a number"));
        for _ in 0..inputs {
            let bytes = mutated(&mut dice);
            if std::panic::catch_unwind(|| forwarded(&bytes)).is_err() {
                panic!("failed by {}", bytes.escape_ascii());
            }
        }
        // Longer than the part that is read.
        let long = SEEDS.join(",").repeat(40);
        (0..20).for_each(|cut| forwarded(&long.as_bytes()[cut..]));
    }
}

//! One address in a forwarded header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads `IPv4`, `IPv4:port`, `IPv6`, `[IPv6]` or `[IPv6]:port`. An IPv6 address without brackets
/// has no port. An address with a zone is invalid. An IPv4 address that is mapped into IPv6 becomes
/// that IPv4 address.
pub(super) fn parse(text: &[u8]) -> Option<IpAddr> {
    // Addresses have no other characters.
    let text = str::from_utf8(text).ok()?;
    let address = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() {
            check_port(port.strip_prefix(':')?)?;
        }
        IpAddr::V6(address.parse().ok()?)
    } else if let Ok(address) = text.parse::<Ipv6Addr>() {
        IpAddr::V6(address)
    } else {
        let (address, port) = text.split_once(':').unwrap_or((text, "0"));
        check_port(port)?;
        IpAddr::V4(address.parse::<Ipv4Addr>().ok()?)
    };
    Some(address.to_canonical())
}

/// Checks a port: 1 to 5 digits, and at most 65535.
fn check_port(text: &str) -> Option<u16> {
    let is_digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_a_port_and_nothing_else() {
        let parsed = |text: &str| parse(text.as_bytes()).map(|address| address.to_string());
        for (text, address) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:0", "203.0.113.9"),
            ("203.0.113.9:65535", "203.0.113.9"),
            ("2001:db8::9", "2001:db8::9"),
            ("2001:DB8:0:0:0:0:0:9", "2001:db8::9"),
            ("2001:db8::9:4711", "2001:db8::9:4711"),
            ("[2001:db8::9]", "2001:db8::9"),
            ("[2001:db8::9]:4711", "2001:db8::9"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
            ("[::ffff:cb00:7109]:80", "203.0.113.9"),
            ("::203.0.113.9", "::cb00:7109"),
            ("64:ff9b::203.0.113.9", "64:ff9b::cb00:7109"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(address), "{text}");
        }
        for text in [
            "",
            "junk",
            "unknown",
            "_hidden",
            "203.0.113",
            "203.0.113.9.1",
            "203.0.113.256",
            "203.0.113.09",
            "0x7f.0.0.1",
            "203.0.113.9:",
            "203.0.113.9:65536",
            "203.0.113.9:+80",
            "203.0.113.9:000080",
            "203.0.113.9:_port",
            "203.0.113.9 ",
            "203.0.113.9/32",
            "[203.0.113.9]",
            "2001:db8::9%eth0",
            "[2001:db8::9%1]:80",
            "fe80::1%1",
            "[2001:db8::9",
            "2001:db8::9]",
            "[2001:db8::9]80",
            "[2001:db8::9]:",
            "[[2001:db8::9]]",
            "2001:db8::9::",
            "٢٠٣.0.113.9",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(parse(b"203.0.113.9\xff"), None);
    }
}

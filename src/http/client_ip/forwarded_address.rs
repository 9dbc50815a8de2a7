//! One address in a forwarded header.

use std::net::{IpAddr, Ipv6Addr};

/// Reads `IPv4`, `IPv4:port`, `IPv6`, `[IPv6]` or `[IPv6]:port`. CloudFront writes a port without
/// brackets: `IPv6:port`, if the whole is no address. An address with a zone is invalid. An IPv4
/// address that is mapped into IPv6 becomes that IPv4 address.
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
        let (address, port) = text.rsplit_once(':').unwrap_or((text, "0"));
        check_port(port)?;
        address.parse().ok()?
    };
    Some(address.to_canonical())
}

/// Checks a port: 1 to 5 digits, and at most 65535.
fn check_port(text: &str) -> Option<u16> {
    let is_digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;

//! Networks of trusted proxies, as operators write them.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::core::{Error, ErrorKind};

/// The bits before an IPv4 address that is mapped into IPv6.
const MAPPED_BITS: u8 = 96;

/// Reads a list of networks with commas. An address is a network of one address.
pub(super) fn parse(list: &str) -> Result<Vec<IpNet>, Error> {
    let texts = list.split(',').map(str::trim).filter(|text| !text.is_empty());
    let network = |text: &str| {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let network = network.ok().filter(|network| !is_half_mapped(network));
        network.ok_or_else(|| {
            let why = format!("{text:?} is neither a network such as 10.0.0.0/8 nor an address");
            Error::new(ErrorKind::Configuration, why)
        })
    };
    texts.map(network).collect()
}

/// Returns true for an IPv4 address that is mapped into IPv6, with the bits of an IPv4 network:
/// `::ffff:10.0.0.0/8`. That would mean `::/8`, which contains clients behind NAT64.
fn is_half_mapped(network: &IpNet) -> bool {
    let IpNet::V6(network) = network else { return false };
    network.addr().to_ipv4_mapped().is_some() && network.prefix_len() < MAPPED_BITS
}

/// Converts a network of mapped IPv4 addresses to a network of IPv4, for tests of addresses.
pub(super) fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else { return network };
    let bits = mapped.prefix_len().checked_sub(MAPPED_BITS);
    match (mapped.addr().to_ipv4_mapped(), bits) {
        (Some(address), Some(bits)) => {
            Ipv4Net::new(address, bits).map_or(network, |network| network.into())
        }
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_addresses_with_commas_between_them() {
        let read =
            |list| parse(list).unwrap().into_iter().map(canonical).map(|one| one.to_string());
        let list = " 10.0.0.0/8,127.0.0.1 ,, ::1,fd00::/8, ::ffff:192.0.2.0/120,";
        let read: Vec<_> = read(list).collect();
        assert_eq!(read, ["10.0.0.0/8", "127.0.0.1/32", "::1/128", "fd00::/8", "192.0.2.0/24"]);
        assert_eq!(parse("").unwrap(), []);
        for wrong in [
            "10.0.0.0/33",
            "10.0.0/8",
            "proxy",
            "10.0.0.1:80",
            "10.0.0.0/8;::1",
            "::ffff:10.0.0.0/8",
        ] {
            let error = parse(&format!("127.0.0.1, {wrong}")).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}

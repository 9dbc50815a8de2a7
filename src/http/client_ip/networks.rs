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
mod tests;

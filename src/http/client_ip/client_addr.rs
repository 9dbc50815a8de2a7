//! A client: an IPv4 address, or the network of an IPv6 address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use crate::core::Charge;
use crate::core::extractor::{IntoCharge, Keyed};

/// The networks into which NAT64 gateways map IPv4, by RFC 6052 and RFC 8215.
const NAT64: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
];

/// A client found by [`ClientIp`](crate::key::ClientIp): an IPv4 address, or the network of an IPv6
/// address.
///
/// Its text is the key: `203.0.113.9`, `2001:db8:1:2::/64`, or `2001:db8::9` for an address that is
/// not grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr {
    address: IpAddr,
    network: IpNet,
}

impl ClientAddr {
    pub(super) fn new(address: IpAddr, ipv6_prefix: u8) -> Self {
        let network = match address {
            IpAddr::V6(address) if NAT64.iter().all(|network| !network.contains(&address)) => {
                let network = Ipv6Net::new(address, ipv6_prefix);
                network.map_or(IpNet::from(IpAddr::V6(address)), |network| network.trunc().into())
            }
            _ => IpNet::from(address),
        };
        Self { address, network }
    }

    /// The original address, for logs. Limits count its [`network`](ClientAddr::network).
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the network that limits count: the address itself, or the network of an IPv6
    /// address.
    #[must_use]
    pub fn network(&self) -> IpNet {
        self.network
    }
}

impl fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            network if network.prefix_len() == network.max_prefix_len() => network.addr().fmt(f),
            network => network.fmt(f),
        }
    }
}

/// A charge of one unit of its key.
impl From<ClientAddr> for Charge {
    fn from(client: ClientAddr) -> Self {
        client.to_string().into()
    }
}

impl IntoCharge for ClientAddr {
    fn into_charge(self) -> Keyed {
        Keyed::Charge(self.into())
    }
}

#[cfg(test)]
mod tests;

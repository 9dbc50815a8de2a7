//! The bounds of a port: the number of its connections, and the share of one address.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::open_files;
use crate::port::timeouts::Timeouts;

/// The bounds of a port.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The most connections at once.
    pub connections: usize,
    /// `MAX_OF_ADDRESS`: the most of them that one address has. Default: all that others leave.
    pub of_address: Option<usize>,
    /// Networks of proxies, whose addresses stand for many callers.
    pub proxies: Vec<IpNet>,
    pub timeouts: Timeouts,
}

impl Bounds {
    /// Reads `MAX_CONNECTIONS`, which may be `most`, and `MAX_OF_ADDRESS`.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub fn read(
        get: impl Fn(&str) -> Option<String>,
        most: usize,
        timeouts: Timeouts,
    ) -> Result<Self, String> {
        let connections = open_files::max_connections(&get, most)?;
        let of_address = |text: String| match text.parse() {
            Ok(set) if set > 0 => Ok(set),
            _ => Err(format!("MAX_OF_ADDRESS is {text:?}, and must be a number from 1 on")),
        };
        let of_address = get("MAX_OF_ADDRESS").map(of_address).transpose()?;
        Ok(Self { connections, of_address, proxies: Vec::new(), timeouts })
    }

    /// The same for another port, which may have so many connections.
    #[must_use]
    pub fn with_connections(&self, connections: usize) -> Self {
        Self { connections, ..self.clone() }
    }

    /// The caller that an address stands for: by IPv6 a network of 64 bits, which is the least that
    /// one gets. `None` for a proxy, whose connections have no share.
    pub(crate) fn caller(&self, address: IpAddr) -> Option<IpAddr> {
        if self.proxies.iter().any(|network| network.contains(&address)) {
            return None;
        }
        Some(match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_of_ipv6_is_a_network() {
        let proxies = vec!["10.0.0.0/8".parse().unwrap()];
        let timeouts = Timeouts::default();
        let bounds = Bounds { connections: 9, of_address: None, proxies, timeouts };
        let caller = |text: &str| bounds.caller(text.parse().unwrap());
        assert_eq!(caller("2001:db8::1"), caller("2001:db8::2:3"));
        assert_ne!(caller("2001:db8::1"), caller("2001:db8:0:1::1"));
        assert_ne!(caller("192.0.2.1"), caller("192.0.2.2"));
        assert_eq!(caller("10.1.2.3"), None);
    }
}

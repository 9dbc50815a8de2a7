//! The bounds of a port: the number of its connections, and the share of one address.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZero;

use clap::Args;
use ipnet::IpNet;

use crate::open_files;
use crate::port::timeouts::Timeouts;

/// What callers may do, as options and as variables.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Callers")]
pub struct Callers {
    #[command(flatten)]
    pub timeouts: Timeouts,
    /// Connections at once [default: from the limit of open files, at most 10000]
    #[arg(long, env)]
    pub max_connections: Option<usize>,
    /// Connections of one address [default: all that others leave]
    #[arg(long, env)]
    pub max_of_address: Option<NonZero<usize>>,
}

/// The bounds of a port.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The most connections at once.
    pub connections: usize,
    /// The most of them that one address has. `None`: all that others leave.
    pub of_address: Option<usize>,
    /// Networks of proxies, whose addresses stand for many callers.
    pub proxies: Vec<IpNet>,
    pub timeouts: Timeouts,
}

impl Bounds {
    /// The bounds that were set, of `most` connections at most.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub fn new(callers: &Callers, most: usize, proxies: &[IpNet]) -> Result<Self, String> {
        let connections = open_files::max_connections(callers.max_connections, most)?;
        let of_address = callers.max_of_address.map(NonZero::get);
        Ok(Self { connections, of_address, proxies: proxies.to_vec(), timeouts: callers.timeouts })
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

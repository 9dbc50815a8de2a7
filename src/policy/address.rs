//! The client's address in the form of a key.

use std::net::IpAddr;

use super::key::FindAddress;
use crate::http::{ClientIp, FindPeer, Head};

impl<P: FindPeer + Send + Sync> FindAddress for ClientIp<P> {
    fn of_request(&self, head: &Head<'_>) -> Option<String> {
        self.of(*head).map(|client| client.to_string())
    }

    /// Reads an address, or the network that is a key: `2001:db8::/64`.
    fn of_text(&self, text: &str) -> Option<String> {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
        Some(self.group(address).to_string())
    }
}

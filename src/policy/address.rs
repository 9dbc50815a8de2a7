//! The client's address, as a key has it.

use std::net::{IpAddr, SocketAddr};

use super::key::FindAddress;
use crate::Head;

/// The peer of the connection, which a server puts into the request's extensions.
pub(super) struct PeerAddress;

impl FindAddress for PeerAddress {
    fn of_request(&self, head: &Head<'_>) -> Option<String> {
        let peer = head.extensions().get::<SocketAddr>()?;
        Some(grouped(peer.ip()))
    }

    fn of_text(&self, text: &str) -> Option<String> {
        text.trim_matches(['[', ']']).parse().ok().map(grouped)
    }
}

fn grouped(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

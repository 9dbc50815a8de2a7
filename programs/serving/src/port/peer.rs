//! The other side of a connection.

use std::net::{IpAddr, SocketAddr};

use http::HeaderValue;

/// The peer of a connection, whose text is made once.
#[derive(Debug)]
pub struct Peer {
    pub socket: SocketAddr,
    /// Of version 4 where it can be.
    pub address: IpAddr,
    /// The text of the address.
    pub text: HeaderValue,
}

impl Peer {
    pub fn new(socket: SocketAddr) -> Self {
        let address = socket.ip().to_canonical();
        let text = HeaderValue::try_from(address.to_string()).expect("visible letters");
        Self { socket, address, text }
    }
}

//! The peer: the address at the other end of the socket.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The peer of the socket, for servers without a feature of this crate. They put it into the
/// extensions of each request.
///
/// ```
/// use tower_sluice::key::PeerAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr("192.0.2.1:5000".parse().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// Finds the IP address of the socket's peer in the extensions of a request: [`KnownPeers`], or a
/// closure `Fn(&Extensions) -> Option<IpAddr>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no peer",
    note = "give the closure's types: `|extensions: &http::Extensions| -> Option<std::net::IpAddr>`"
)]
pub trait FindPeer {
    /// Returns the peer, if it has an IP address.
    fn find_peer(&self, extensions: &Extensions) -> Option<IpAddr>;
}

impl<F> FindPeer for F
where
    F: Fn(&Extensions) -> Option<IpAddr>,
{
    fn find_peer(&self, extensions: &Extensions) -> Option<IpAddr> {
        self(extensions)
    }
}

/// Finds a [`PeerAddr`]. With the feature `axum` it also finds a `ConnectInfo<SocketAddr>` and a
/// `MockConnectInfo` of it. With the feature `tonic` it also finds a `TcpConnectInfo`, which
/// tonic's server sets with and without TLS. The first one found, in this order, counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownPeers;

impl FindPeer for KnownPeers {
    fn find_peer(&self, extensions: &Extensions) -> Option<IpAddr> {
        let peer = extensions.get::<PeerAddr>().map(|peer| peer.0);
        #[cfg(feature = "axum")]
        let peer = peer.or_else(|| of_axum(extensions));
        #[cfg(feature = "tonic")]
        let peer = peer.or_else(|| of_tonic(extensions));
        peer.map(|peer| peer.ip())
    }
}

#[cfg(feature = "axum")]
fn of_axum(extensions: &Extensions) -> Option<SocketAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    peer.or_else(|| extensions.get::<MockConnectInfo<SocketAddr>>().map(|peer| peer.0))
}

#[cfg(feature = "tonic")]
fn of_tonic(extensions: &Extensions) -> Option<SocketAddr> {
    use tonic::transport::server::TcpConnectInfo;

    extensions.get::<TcpConnectInfo>()?.remote_addr()
}

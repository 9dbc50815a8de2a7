//! The IP address of the client, even behind proxies.
//!
//! `header.rs` splits a header into elements, the last element first.

mod client_addr;
mod forwarded;
mod forwarded_address;
mod header;
mod networks;
mod peer;

pub use client_addr::ClientAddr;
pub use peer::{FindPeer, KnownPeers, PeerAddr};

use std::net::IpAddr;

use http::{HeaderName, Request};
use ipnet::IpNet;

use self::header::ForwardedHeader;
use super::head::Head;
use crate::core::extractor::{KeyExtractor, Keyed};
use crate::core::{Error, ErrorKind};

/// Charges each request to the IP address of its client, which axum or tonic provides.
///
/// The client is the peer of the socket, and **no header is used** unless a proxy is
/// [trusted](ClientIp::trusted_networks).
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::{Router, routing::get};
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{Memory, Quota, RateLimitLayer, by_client_ip};
///
/// let limiter = Memory::new("ip", TokenBucket::new(Quota::per_second(10)));
/// let limit = RateLimitLayer::new(limiter, by_client_ip());
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(limit);
/// // This puts the peer into each request. Without it, no request has a key.
/// let app = app.into_make_service_with_connect_info::<SocketAddr>();
/// // axum::serve(listener, app)
/// # let _ = app;
/// ```
///
/// If the peer is unknown, the request has no key and gets 400. The peer comes from:
///
/// | server | source of the peer |
/// |---|---|
/// | axum, with the feature `axum` | `into_make_service_with_connect_info::<SocketAddr>()` |
/// | the same, in tests | `MockConnectInfo` |
/// | tonic, with the feature `tonic` | tonic's own server, without further settings |
/// | any other | [`PeerAddr`] in the request's extensions, or a closure: [`ClientIp::peer`] |
///
/// These features are for axum 0.8 and tonic 0.14. Other versions have other types: use
/// [`ClientIp::peer`] for them.
#[cfg(any(feature = "axum", feature = "tonic"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "axum", feature = "tonic"))))]
#[doc(alias("by_ip", "PeerIpKeyExtractor", "SmartIpKeyExtractor"))]
pub fn by_client_ip() -> ClientIp {
    ClientIp::new()
}

/// Finds the IP address of a request's client. Made by `by_client_ip()`, which needs the feature
/// `axum` or `tonic`, or by [`ClientIp::new`].
///
/// It is a [`KeyExtractor`]. As one of several keys:
/// `by_head(move |head| (head.header("x-user"), client_ip.of(head)))`.
///
/// # Which address counts
///
/// The addresses are read from the right, starting with the peer of the socket. If an address is a
/// trusted proxy, that proxy wrote the next element to the left. The first address that is not
/// trusted is the client. See [keys and client addresses][keys].
///
/// - An element that is not an address ends the search, and the last valid address is the client.
///   `unknown`, an address with a zone, and an element with a byte above 0x7F are not addresses.
/// - At most 64 elements and 8 KiB are read, from the right.
/// - **Each trusted proxy must append to this header, or set it.** If one passes it on unchanged,
///   the client chooses its own address.
///
/// The key is the address in plain text, `203.0.113.9`, and that of an IPv6 address its network,
/// `2001:db8:1:2::/64`, but for NAT64 gateways (`64:ff9b::/96` and `64:ff9b:1::/48`). An IPv4
/// address that is mapped into IPv6 becomes that IPv4 address. [`group`](ClientIp::group) returns
/// the key of an address.
///
/// [keys]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/keys_and_client_addresses/
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp<P = KnownPeers> {
    peer: P,
    trusts_missing_peer: bool,
    trusted: Trusted,
    header: ForwardedHeader,
    ipv6_prefix: u8,
}

#[derive(Clone, Debug)]
enum Trusted {
    Networks(Vec<IpNet>),
    Hops(usize),
}

impl ClientIp {
    /// Takes the address of the peer, and reads no header.
    pub const fn new() -> Self {
        Self {
            peer: KnownPeers,
            trusts_missing_peer: false,
            trusted: Trusted::Networks(Vec::new()),
            header: ForwardedHeader::X_FORWARDED_FOR,
            ipv6_prefix: 64,
        }
    }
}

impl Default for ClientIp {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> ClientIp<P> {
    /// Trusts the header of proxies in these networks. Default: none.
    ///
    /// It replaces [`trusted_hops`](ClientIp::trusted_hops).
    pub fn trusted_networks<N: Into<IpNet>>(self, all: impl IntoIterator<Item = N>) -> Self {
        let networks = all.into_iter().map(|one| networks::canonical(one.into())).collect();
        Self { trusted: Trusted::Networks(networks), ..self }
    }

    /// Trusts the header of proxies in the networks of a text, such as a setting. The text is a
    /// list of networks and addresses with commas: `10.0.0.0/8, 127.0.0.1`. With an empty text no
    /// proxy is trusted.
    ///
    /// # Errors
    ///
    /// If an element is neither a network nor an address. The error shows the element.
    pub fn try_trusted_networks(self, list: &str) -> Result<Self, Error> {
        Ok(self.trusted_networks(networks::parse(list)?))
    }

    /// Trusts this number of proxies with any addresses. The client is the `hops`-th element from
    /// the right, or the first element if there are fewer. With 0 no header is read. Default: 0.
    ///
    /// It is for proxies whose addresses change. Clients that reach this server past one of them
    /// can choose their own address. It replaces [`trusted_networks`](ClientIp::trusted_networks).
    pub fn trusted_hops(self, hops: usize) -> Self {
        Self { trusted: Trusted::Hops(hops), ..self }
    }

    /// Sets the header that proxies write. Default: `x-forwarded-for`.
    ///
    /// `forwarded` is read by RFC 7239, and every other header as a list of addresses, like
    /// `x-forwarded-for`.
    pub fn header(self, name: HeaderName) -> Self {
        Self { header: ForwardedHeader::new(name), ..self }
    }

    /// Groups IPv6 addresses by this number of first bits. Default: 64. With 128 or more, each
    /// address has a key of its own.
    ///
    /// Some providers give a customer a `/56` or a `/48`.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { ipv6_prefix: bits.min(128), ..self }
    }

    /// Trusts the header of a peer without an IP address, such as on a Unix socket. Default:
    /// `false`, and such a request has no key.
    ///
    /// Set it only if nothing but a proxy can connect. Otherwise each client could choose its own
    /// address.
    pub fn trusts_missing_peer(self, trusts: bool) -> Self {
        Self { trusts_missing_peer: trusts, ..self }
    }

    /// Finds the peer by a closure over the request's extensions. Default: [`KnownPeers`].
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use http::Extensions;
    /// use tower_sluice::key::ClientIp;
    ///
    /// // What a server of your own puts there.
    /// #[derive(Clone)]
    /// struct Connection(SocketAddr);
    ///
    /// let client_ip = ClientIp::new().peer(|extensions: &Extensions| -> Option<IpAddr> {
    ///     Some(extensions.get::<Connection>()?.0.ip())
    /// });
    /// # let _ = client_ip;
    /// ```
    pub fn peer<F: FindPeer>(self, find: F) -> ClientIp<F> {
        let Self { trusts_missing_peer, trusted, header, ipv6_prefix, .. } = self;
        ClientIp { peer: find, trusts_missing_peer, trusted, header, ipv6_prefix }
    }

    /// Returns the key to which requests from an address are charged, for example for a reset.
    #[must_use]
    pub fn group(&self, address: IpAddr) -> ClientAddr {
        ClientAddr::new(address.to_canonical(), self.ipv6_prefix)
    }

    /// Returns true if `address` is trusted to write an element of the header. `hop` is its
    /// distance from the peer.
    fn trusts(&self, address: IpAddr, hop: usize) -> bool {
        match &self.trusted {
            Trusted::Networks(networks) => networks.iter().any(|one| one.contains(&address)),
            Trusted::Hops(hops) => hop < *hops,
        }
    }
}

impl<P: FindPeer> ClientIp<P> {
    /// Returns the client of a request, with the reason if its peer is not known.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](ErrorKind::Configuration): it is a mistake of the
    /// application, which callers cannot correct.
    pub fn find(&self, head: Head<'_>) -> Result<ClientAddr, Error> {
        let text = "request has no peer address: serve with into_make_service_with_connect_info, \
                    or put a PeerAddr into each request";
        self.of(head).ok_or_else(|| Error::new(ErrorKind::Configuration, text))
    }

    /// Returns the client of a request. `None` if the peer is not known.
    #[must_use]
    pub fn of(&self, head: Head<'_>) -> Option<ClientAddr> {
        let peer = self.peer.find_peer(head.extensions()).map(|peer| peer.to_canonical());
        let mut current = peer;
        if peer.map_or(self.trusts_missing_peer, |peer| self.trusts(peer, 0)) {
            let text = self.header.text(head.headers());
            for (element, hop) in self.header.elements(&text).zip(1..) {
                let Some(address) = self.header.address(element) else { break };
                current = Some(address);
                if !self.trusts(address, hop) {
                    break;
                }
            }
        }
        current.map(|address| self.group(address))
    }
}

impl<B, P: FindPeer> KeyExtractor<Request<B>> for ClientIp<P> {
    fn extract(&self, request: &Request<B>) -> Keyed {
        match self.find(Head::from(request)) {
            Ok(client) => Keyed::Charge(client.into()),
            Err(no_peer) => Keyed::Missing(no_peer),
        }
    }
}

/// The table of expected clients, and random headers against a simple model.
#[cfg(test)]
mod tests;

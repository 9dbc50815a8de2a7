//! The IP address of the client, even behind proxies.
//!
//! `peer.rs` finds the socket's peer. `header.rs` splits a header into elements, the last one
//! first. `forwarded.rs` finds the address in an element of `Forwarded`, and `address.rs` reads it.
//! `networks.rs` reads the networks of trusted proxies, and `client_addr.rs` groups IPv6 addresses.

mod address;
mod client_addr;
mod forwarded;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod header;
mod networks;
mod peer;

pub use client_addr::ClientAddr;
pub use networks::NetworksError;
pub use peer::{FindPeer, KnownPeers, PeerAddr};

use std::net::IpAddr;

use http::{HeaderName, Request};
use ipnet::IpNet;

use self::header::ForwardedHeader;
use super::head::Head;
use crate::{Error, ErrorKind, KeyExtractor, Keyed};

/// Charges each request to the IP address of its client, which axum or tonic knows.
///
/// The client is the peer of the socket, and **no header is believed** unless a proxy is
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
/// Where no peer is known, the request has no key and gets 400:
///
/// | server | what puts the peer there |
/// |---|---|
/// | axum, with the feature `axum` | `into_make_service_with_connect_info::<SocketAddr>()` |
/// | the same, in tests | `MockConnectInfo` |
/// | tonic, with the feature `tonic` | tonic's own server, without further settings |
/// | any other | [`PeerAddr`] in the request's extensions, or a closure: [`ClientIp::peer`] |
///
/// These features are for axum 0.8 and tonic 0.14. Another version has types of its own, so take
/// [`ClientIp::peer`] there.
#[cfg(any(feature = "axum", feature = "tonic"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "axum", feature = "tonic"))))]
#[doc(alias("by_ip", "PeerIpKeyExtractor", "SmartIpKeyExtractor"))]
#[must_use]
pub fn by_client_ip() -> ClientIp {
    ClientIp::new()
}

/// Finds the IP address of a request's client. Made by `by_client_ip()`, which needs the feature
/// `axum` or `tonic`, or by [`ClientIp::new`].
///
/// ```
/// use tower_sluice::{ClientIp, Head, PeerAddr};
///
/// # fn run() -> Result<(), tower_sluice::NetworksError> {
/// let client_ip = ClientIp::new().try_trusted_networks("10.0.0.0/8, 127.0.0.1")?;
///
/// let proxy = PeerAddr("10.0.0.5:443".parse().unwrap());
/// let header = "1.2.3.4, 203.0.113.9, 10.0.0.7";
/// let request = http::Request::builder().header("x-forwarded-for", header);
/// let request = request.extension(proxy).body(()).unwrap();
/// let client = client_ip.of(Head::from(&request)).unwrap();
/// // No trusted proxy wrote the element to the left of it.
/// assert_eq!(client.to_string(), "203.0.113.9");
/// # Ok(()) }
/// # run().unwrap();
/// ```
///
/// It is a [`KeyExtractor`], and one part of several keys:
/// `by_head(move |head| (head.header("x-user"), client_ip.of(head)))`.
///
/// # What is believed
///
/// Each proxy appends to a header the address that it got the request from. So the header is read
/// from the right, beginning with the peer of the socket. While an address is that of a trusted
/// proxy, that proxy wrote the next element to the left. The first address that is not trusted is
/// the client.
///
/// - No proxy is trusted unless set. Then the peer is the client, and no header is read.
/// - An element that is not an address ends the search, and the last good address is the client. So
///   does an element with a byte above 0x7F, an address with a zone, and `unknown`.
/// - At most 64 elements and 8 KiB are read, from the right.
/// - A client can write only to the left of the text that the first trusted proxy appended. It
///   cannot change how that text is read, not even with a quotation mark that is left open.
/// - **Each trusted proxy has to append to the one header, or to set it.** A client may send the
///   header itself, and a proxy that passes it on unchanged makes it believed.
///
/// # The key
///
/// An IPv4 address is the key as it is, as `203.0.113.9`. IPv6 clients have whole networks, so an
/// IPv6 address is grouped by its first 64 bits, as `2001:db8:1:2::/64`. An IPv4 address that is
/// mapped into IPv6 is that IPv4 address. One of a NAT64 gateway, in `64:ff9b::/96`, is kept whole.
///
/// In Redis the key is stored as it is: `sluice:ip:tb1:{203.0.113.9}`.
/// [`group`](ClientIp::group) makes the key of an address, to reset it for instance.
#[derive(Clone, Debug)]
pub struct ClientIp<P = KnownPeers> {
    peer: P,
    trusts_missing_peer: bool,
    trusted: Trusted,
    header: ForwardedHeader,
    ipv6_prefix: u8,
}

/// The proxies that are trusted.
#[derive(Clone, Debug)]
enum Trusted {
    Networks(Vec<IpNet>),
    Hops(usize),
}

impl ClientIp {
    /// Takes the address of the peer, and believes no header.
    ///
    /// The peer is read from the request's extensions: a [`PeerAddr`], and with the features `axum`
    /// and `tonic` what these put there.
    #[must_use]
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
    /// Believes the header of proxies in these networks. Default: none.
    ///
    /// Replaces [`trusted_hops`](ClientIp::trusted_hops).
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_sluice::ClientIp;
    ///
    /// let proxies = [IpAddr::from([10, 0, 0, 5]), IpAddr::from([10, 0, 0, 6])];
    /// let client_ip = ClientIp::new().trusted_networks(proxies);
    /// # let _ = client_ip;
    /// ```
    #[must_use]
    pub fn trusted_networks<N: Into<IpNet>>(self, all: impl IntoIterator<Item = N>) -> Self {
        let networks = all.into_iter().map(|one| networks::canonical(one.into())).collect();
        Self { trusted: Trusted::Networks(networks), ..self }
    }

    /// Believes the header of proxies in the networks of a text that an operator writes. The text
    /// has networks and addresses with commas between them, as in `10.0.0.0/8, 127.0.0.1`. With an
    /// empty text no proxy is trusted.
    ///
    /// # Errors
    ///
    /// If one of them is neither a network nor an address. The error repeats it.
    pub fn try_trusted_networks(self, list: &str) -> Result<Self, NetworksError> {
        Ok(self.trusted_networks(networks::parse(list)?))
    }

    /// Believes this number of proxies, whatever their addresses: the client is the `hops`-th
    /// element from the right, or the first one if there are fewer. 0 believes no header. Default:
    /// 0.
    ///
    /// For proxies whose addresses change. A client that reaches this server without passing all of
    /// them chooses its own address: make sure that none can. Replaces
    /// [`trusted_networks`](ClientIp::trusted_networks).
    #[must_use]
    pub fn trusted_hops(self, hops: usize) -> Self {
        Self { trusted: Trusted::Hops(hops), ..self }
    }

    /// Sets the one header that is believed. Default: `x-forwarded-for`.
    ///
    /// `forwarded` is read after RFC 7239, and every other header as a list of addresses, as
    /// `x-forwarded-for` is. A header that the proxy sets to one address is such a list too.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        Self { header: ForwardedHeader::new(name), ..self }
    }

    /// Groups IPv6 addresses by their first bits. Default: 64. More than 128 counts as 128: each
    /// address has a key of its own.
    ///
    /// Some providers give a customer a `/56` or a `/48`.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { ipv6_prefix: bits.min(128), ..self }
    }

    /// Believes the header of a peer without an IP address, as on a Unix socket. Default: no, and
    /// such a request has no key.
    ///
    /// Set it only where nobody but a proxy can connect. Where the peer is missing for another
    /// reason, such as a forgotten `into_make_service_with_connect_info`, each client would choose
    /// its own address.
    #[must_use]
    pub fn trusts_missing_peer(self, trusts: bool) -> Self {
        Self { trusts_missing_peer: trusts, ..self }
    }

    /// Finds the peer by a closure over the request's extensions. Default: [`KnownPeers`].
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use http::Extensions;
    /// use tower_sluice::ClientIp;
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
    #[must_use]
    pub fn peer<F: FindPeer>(self, find: F) -> ClientIp<F> {
        let Self { trusts_missing_peer, trusted, header, ipv6_prefix, .. } = self;
        ClientIp { peer: find, trusts_missing_peer, trusted, header, ipv6_prefix }
    }

    /// The key that requests from an address are charged to: for a reset, for instance.
    #[must_use]
    pub fn group(&self, address: IpAddr) -> ClientAddr {
        ClientAddr::new(address.to_canonical(), self.ipv6_prefix)
    }

    /// Returns true if the element that `address` wrote into the header is believed. `hop` is its
    /// distance from the peer.
    fn trusts(&self, address: IpAddr, hop: usize) -> bool {
        match &self.trusted {
            Trusted::Networks(networks) => networks.iter().any(|one| one.contains(&address)),
            Trusted::Hops(hops) => hop < *hops,
        }
    }
}

impl<P: FindPeer> ClientIp<P> {
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

/// The error of a request without a known peer. It is a mistake of the application, which no caller
/// can correct.
pub(crate) fn no_peer() -> Error {
    let text = "request has no peer address: serve with into_make_service_with_connect_info, or \
                put a PeerAddr into each request";
    Error::new(ErrorKind::Configuration, text)
}

impl<B, P: FindPeer> KeyExtractor<Request<B>> for ClientIp<P> {
    fn extract(&self, request: &Request<B>) -> Keyed {
        match self.of(Head::from(request)) {
            Some(client) => Keyed::Charge(client.into()),
            None => Keyed::Missing(no_peer()),
        }
    }
}

#[cfg(test)]
mod tests;

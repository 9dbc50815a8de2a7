//! The key that a policy charges a request to.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use http::header::{COOKIE, HOST};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize, Serializer};
use tower_sluice::crates::ipnet::{IpNet, Ipv6Net};
use tower_sluice::key::{ClientIp, FindPeer, Head};
use tower_sluice::{Error, ErrorKind, by_api_key};

use super::path::{Allowed, Ambiguous, Reading, ambiguous_path};
use super::request_values::{cookies, only, parameters};
use super::values::Texts;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    ClientIp,
    /// The caller's network, by the bits of its prefix. `None`: as `client_ip`.
    ClientNetwork {
        ipv4: Option<u8>,
        ipv6: Option<u8>,
    },
    Header(HeaderName),
    Cookie(String),
    Query(String),
    /// A key of the program.
    Own(String),
    Path {
        ignore_case: bool,
    },
    Host,
    Global,
}

/// The parts of a key, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Texts")]
pub(crate) struct PolicyKey(Vec<KeyPart>);

/// Finds the caller's address in a request, and the network that limits count for an address.
pub(crate) trait FindAddress: Send + Sync {
    fn of_request(&self, head: &Head<'_>) -> Result<(IpAddr, String), Error>;
    fn group(&self, address: IpAddr) -> String;
}

/// A closure of the program that finds a key.
pub(crate) type OwnKey = Arc<dyn Fn(&Head<'_>) -> Option<String> + Send + Sync>;

/// What the program does for rows: finds addresses and its own keys, and perhaps reads bodies.
#[derive(Clone)]
pub(crate) struct Finders {
    pub(crate) addresses: Arc<dyn FindAddress>,
    pub(crate) own: BTreeMap<String, OwnKey>,
    /// True if it reads costs in the bodies of responses.
    pub(crate) reads_bodies: bool,
}

impl Finders {
    /// Returns the value of a key of the program.
    ///
    /// # Errors
    ///
    /// If the request has no such key.
    pub(crate) fn own(&self, name: &str, head: &Head<'_>) -> Result<String, Error> {
        let value = self.own.get(name).and_then(|find| find(head));
        only(value.into_iter(), "key", name)
    }
}

/// The addresses of IPv4 behind a translator, by RFC 6052 and RFC 8215: each is a caller.
const NAT64: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
];

impl KeyPart {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "client_ip" => Self::ClientIp,
            "path" => Self::Path { ignore_case: false },
            "host" => Self::Host,
            "global" => Self::Global,
            text => match text.split_once([':', '/']) {
                Some(("header", name)) => {
                    let name = name.trim();
                    let wrong = |_| format!("{name:?} is not a header name");
                    match name.parse().map_err(wrong)? {
                        HOST => {
                            return Err(String::from("write `host`: HTTP/2 has no such header"));
                        }
                        COOKIE => {
                            let why = "write `cookie:NAME`: HTTP/2 splits this header";
                            return Err(String::from(why));
                        }
                        name => Self::Header(name),
                    }
                }
                Some((kind @ ("cookie" | "query"), name)) => match name.trim() {
                    "" => return Err(format!("{text:?} has no name")),
                    name if kind == "cookie" => Self::Cookie(name.to_owned()),
                    name => Self::Query(name.to_owned()),
                },
                Some(("client_ip", prefixes)) => network(prefixes)?,
                _ => Self::Own(text.to_owned()),
            },
        })
    }

    /// Returns the name of a key of the program, unless the program has it.
    fn unknown(&self, finders: &Finders) -> Option<String> {
        let Self::Own(name) = self else { return None };
        let own: String = finders.own.keys().map(|name| format!(", `{name}`")).collect();
        (!finders.own.contains_key(name)).then(|| {
            format!(
                "no key is called {name:?}; there are `client_ip`, `client_ip/24`, `client_ip/56`, `header:NAME`, `cookie:NAME`, `query:NAME`, `path`, `host`, `global`{own}"
            )
        })
    }

    fn of_request(
        &self,
        head: &Head<'_>,
        path: &Reading<'_>,
        finders: &Finders,
    ) -> Result<String, Error> {
        match self {
            Self::ClientIp => Ok(finders.addresses.of_request(head)?.1),
            Self::ClientNetwork { .. } => {
                Ok(self.network_of(finders.addresses.of_request(head)?.0, finders))
            }
            Self::Cookie(name) => only(cookies(head, name), "cookie", name).map(|one| hidden(&one)),
            Self::Query(name) => {
                only(parameters(head, name), "parameter", name).map(|one| hidden(&one))
            }
            Self::Own(name) => finders.own(name, head).map(|one| hidden(&one)),
            // A header may be a secret, which must not be readable in a store.
            Self::Header(name) => by_api_key(name.clone()).find(*head),
            Self::Path { ignore_case } => match path {
                Ok(path) => Ok(path_key(path, *ignore_case)),
                Err(part) => Err(ambiguous_path(part)),
            },
            Self::Host => host_of(head),
            Self::Global => Ok(String::from("global")),
        }
    }

    /// Converts the text that a client sends to this part.
    fn of_text(&self, text: &str, allowed: &Allowed, finders: &Finders) -> Option<String> {
        match self {
            Self::ClientIp => Some(finders.addresses.group(address(text)?)),
            Self::ClientNetwork { .. } => Some(self.network_of(address(text)?, finders)),
            Self::Cookie(_) | Self::Query(_) | Self::Own(_) => {
                (!text.is_empty()).then(|| hidden(text))
            }
            Self::Header(name) => {
                let text = text.trim_ascii();
                (!text.is_empty()).then(|| by_api_key(name.clone()).key_for(text))
            }
            Self::Path { ignore_case } => {
                allowed.read(text).ok().map(|path| path_key(&path, *ignore_case))
            }
            Self::Host => host_name(text).map(str::to_ascii_lowercase),
            Self::Global => (text == "global").then(|| text.to_owned()),
        }
    }
}

impl KeyPart {
    /// Returns the network of an address, by the prefixes of this part.
    fn network_of(&self, address: IpAddr, finders: &Finders) -> String {
        let Self::ClientNetwork { ipv4, ipv6 } = *self else { return address.to_string() };
        let address = address.to_canonical();
        let bits = match address {
            IpAddr::V4(_) => ipv4,
            IpAddr::V6(address) => {
                ipv6.filter(|_| NAT64.iter().all(|network| !network.contains(&address)))
            }
        };
        let network = bits.and_then(|bits| IpNet::new(address, bits).ok());
        network.map_or_else(|| finders.addresses.group(address), |net| net.trunc().to_string())
    }
}

/// Reads the prefixes behind `client_ip/`: that of IPv4, that of IPv6, or both.
fn network(prefixes: &str) -> Result<KeyPart, String> {
    let bits = |text: &str, most| text.parse::<u8>().ok().filter(|bits| (1..=most).contains(bits));
    let (ipv4, ipv6) = match prefixes.split_once('/') {
        Some((ipv4, ipv6)) => (bits(ipv4, 32), bits(ipv6, 128)),
        // An IPv6 network of 32 bits or fewer is a whole provider.
        None => (bits(prefixes, 32), bits(prefixes, 128).filter(|bits| *bits > 32)),
    };
    let stated = 1 + usize::from(prefixes.contains('/'));
    if [ipv4, ipv6].iter().flatten().count() != stated {
        return Err(format!(
            "\"client_ip/{prefixes}\" has no valid prefix; write `client_ip/24` for IPv4, `client_ip/56` for IPv6, or `client_ip/24/56`"
        ));
    }
    Ok(KeyPart::ClientNetwork { ipv4, ipv6 })
}

/// Returns a digest of a value: it may be a secret, which must not be readable in a store.
fn hidden(value: &str) -> String {
    by_api_key(COOKIE).key_for(value)
}

/// Reads an address, or a network that is a key, such as `2001:db8::/64`.
fn address(text: &str) -> Option<IpAddr> {
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    address.trim_matches(['[', ']']).parse().ok()
}

fn path_key(path: &str, ignore_case: bool) -> String {
    if ignore_case { path.to_ascii_lowercase() } else { path.to_owned() }
}

/// Returns the name of the host that a request is for.
///
/// # Errors
///
/// If it has no host, or if its target and its `Host` fields name several: another program may read
/// another one of them.
fn host_of(head: &Head<'_>) -> Result<String, Error> {
    let wrong = |why| Error::new(ErrorKind::Request, why);
    let mut hosts = hosts(head);
    let first = hosts.next().flatten().ok_or_else(|| wrong("request has no host to limit by"))?;
    match hosts.all(|other| other.is_some_and(|other| other.eq_ignore_ascii_case(first))) {
        true => Ok(first.to_ascii_lowercase()),
        false => {
            let why = Ambiguous("other programs may read another one of them");
            Err(wrong("request names several hosts").with_source(why))
        }
    }
}

/// Returns the names in the target and in the `Host` fields of a request. `None`: an invalid one.
pub(crate) fn hosts<'a>(head: &Head<'a>) -> impl Iterator<Item = Option<&'a str>> {
    let target = head.uri().authority().map(|authority| authority.as_str().as_bytes());
    let fields = head.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
    target.into_iter().chain(fields).map(|host| str::from_utf8(host).ok().and_then(host_name))
}

/// Returns the name of a host, without its port and the blanks that HTTP/2 keeps around a value.
pub(crate) fn host_name(host: &str) -> Option<&str> {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let name = match host.split_once(']') {
        Some((address, _)) => address.trim_start_matches('['),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_ascii().trim_end_matches('.');
    (!name.is_empty()).then_some(name)
}

impl PolicyKey {
    pub(crate) fn global() -> Self {
        Self(vec![KeyPart::Global])
    }

    /// Sets that upper and lower case of paths are equal.
    pub(crate) fn ignoring_case(mut self, is_ignored: bool) -> Self {
        for part in &mut self.0 {
            if let KeyPart::Path { ignore_case } = part {
                *ignore_case = is_ignored;
            }
        }
        self
    }

    /// Returns true if all requests have one key.
    pub(crate) fn is_global(&self) -> bool {
        self.0 == [KeyPart::Global]
    }

    /// Returns the number of parts.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks that the program has all keys that only it can have.
    pub(crate) fn check(&self, finders: &Finders) -> Result<(), String> {
        self.0.iter().find_map(|part| part.unknown(finders)).map_or(Ok(()), Err)
    }

    /// Checks that it can name a plan: one header, one cookie, or what the program finds.
    pub(crate) fn check_plan(&self) -> Result<(), String> {
        match &self.0[..] {
            [KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Own(_)] => Ok(()),
            _ => Err(String::from(
                "a plan is `header:NAME`, `cookie:NAME` or a name that the program gives",
            )),
        }
    }

    /// Returns the name of a request's plan as it was written. `None` if it has none or several.
    pub(crate) fn plan(&self, head: &Head<'_>, finders: &Finders) -> Option<String> {
        match self.0.first()? {
            KeyPart::Header(name) => head.header(name.as_str()),
            KeyPart::Cookie(name) => only(cookies(head, name), "cookie", name).ok(),
            KeyPart::Own(name) => finders.own(name, head).ok(),
            _ => None,
        }
    }

    /// Returns the key of a request.
    ///
    /// # Errors
    ///
    /// If a part is missing. The error names it.
    pub(crate) fn of_request(
        &self,
        head: &Head<'_>,
        path: &Reading<'_>,
        finders: &Finders,
    ) -> Result<String, Error> {
        joined(self.0.iter().map(|part| part.of_request(head, path, finders)))
    }

    /// Returns the key of a client that sends these parts. `None` if their number is wrong, or if a
    /// part is invalid.
    pub(crate) fn of_texts<T: AsRef<str>>(
        &self,
        texts: &[T],
        allowed: &Allowed,
        finders: &Finders,
    ) -> Option<String> {
        let of_text = |(part, text): (&KeyPart, &T)| part.of_text(text.as_ref(), allowed, finders);
        let parts = self.0.iter().zip(texts).map(|pair| of_text(pair).ok_or(()));
        joined(parts).ok().filter(|_| texts.len() == self.0.len())
    }
}

/// Joins several parts to one text. Each part has its length, so that different lists make
/// different texts.
fn joined<E>(parts: impl ExactSizeIterator<Item = Result<String, E>>) -> Result<String, E> {
    let is_single = parts.len() == 1;
    let mut all = String::new();
    for part in parts {
        let part = part?;
        if is_single {
            return Ok(part);
        }
        all.push_str(&format!("{}:{part}", part.len()));
    }
    Ok(all)
}

impl TryFrom<Texts> for PolicyKey {
    type Error = String;

    fn try_from(Texts(texts): Texts) -> Result<Self, String> {
        texts.iter().map(|text| KeyPart::parse(text)).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIp => f.write_str("client_ip"),
            Self::ClientNetwork { ipv4, ipv6 } => {
                f.write_str("client_ip")?;
                [ipv4, ipv6].into_iter().flatten().try_for_each(|bits| write!(f, "/{bits}"))
            }
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Own(name) => f.write_str(name),
            Self::Path { .. } => f.write_str("path"),
            Self::Host => f.write_str("host"),
            Self::Global => f.write_str("global"),
        }
    }
}

impl Serialize for PolicyKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [part] => serializer.collect_str(part),
            parts => serializer.collect_seq(parts.iter().map(KeyPart::to_string)),
        }
    }
}

impl<P: FindPeer + Send + Sync> FindAddress for ClientIp<P> {
    fn of_request(&self, head: &Head<'_>) -> Result<(IpAddr, String), Error> {
        self.find(*head).map(|client| (client.address(), client.to_string()))
    }

    fn group(&self, address: IpAddr) -> String {
        ClientIp::group(self, address).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_its_name() {
        for (host, name) in [
            ("Example.COM", Some("Example.COM")),
            (" example.com ", Some("example.com")),
            ("example.com :80 ", Some("example.com")),
            ("example.com:8080", Some("example.com")),
            ("example.com.", Some("example.com")),
            ("[::1]:3000", Some("::1")),
            ("user@example.com:80", Some("example.com")),
            (":80", None),
            (" ", None),
        ] {
            assert_eq!(host_name(host), name, "{host}");
        }
    }

    #[test]
    fn no_two_lists_of_parts_make_one_key() {
        let key = |parts: [&str; 2]| {
            joined(parts.iter().map(|part| Ok::<_, ()>((*part).to_owned()))).unwrap()
        };
        assert_ne!(key(["a:b", "c"]), key(["a", "b:c"]));
        assert_ne!(key(["1:a", "b"]), key(["1", "a1:b"]));
    }
}

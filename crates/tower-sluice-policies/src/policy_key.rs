//! The key that a policy charges a request to.

use std::fmt;
use std::net::IpAddr;

use http::header::HOST;
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize, Serializer};
use tower_sluice::key::{ClientIp, FindPeer, Head};
use tower_sluice::{Error, ErrorKind, by_api_key};

use super::path::{Allowed, Ambiguous, Reading, ambiguous_path};
use super::values::Texts;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    ClientIp,
    Header(HeaderName),
    Path { ignore_case: bool },
    Host,
    Global,
}

/// The parts of a key, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Texts")]
pub(crate) struct PolicyKey(Vec<KeyPart>);

/// Finds the caller's address in a request, and converts a written address to the same form.
pub(crate) trait FindAddress: Send + Sync {
    fn of_request(&self, head: &Head<'_>) -> Result<String, Error>;
    fn of_text(&self, text: &str) -> Option<String>;
}

impl KeyPart {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "client_ip" => Self::ClientIp,
            "path" => Self::Path { ignore_case: false },
            "host" => Self::Host,
            "global" => Self::Global,
            text => {
                let Some(name) = text.strip_prefix("header:") else {
                    return Err(format!(
                        "no key is called {text:?}; there are `client_ip`, `header:NAME`, `path`, `host` and `global`"
                    ));
                };
                let name = name.trim();
                Self::Header(name.parse().map_err(|_| format!("{name:?} is not a header name"))?)
            }
        })
    }

    fn of_request(
        &self,
        head: &Head<'_>,
        path: &Reading<'_>,
        addresses: &dyn FindAddress,
    ) -> Result<String, Error> {
        match self {
            Self::ClientIp => addresses.of_request(head),
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
    fn of_text(
        &self,
        text: &str,
        allowed: &Allowed,
        addresses: &dyn FindAddress,
    ) -> Option<String> {
        match self {
            Self::ClientIp => addresses.of_text(text),
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

    /// Returns the key of a request.
    ///
    /// # Errors
    ///
    /// If a part is missing. The error names it.
    pub(crate) fn of_request(
        &self,
        head: &Head<'_>,
        path: &Reading<'_>,
        addresses: &dyn FindAddress,
    ) -> Result<String, Error> {
        joined(self.0.iter().map(|part| part.of_request(head, path, addresses)))
    }

    /// Returns the key of a client that sends these parts. `None` if their number is wrong, or if a
    /// part is invalid.
    pub(crate) fn of_texts<T: AsRef<str>>(
        &self,
        texts: &[T],
        allowed: &Allowed,
        addresses: &dyn FindAddress,
    ) -> Option<String> {
        let of_text =
            |(part, text): (&KeyPart, &T)| part.of_text(text.as_ref(), allowed, addresses);
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
            Self::Header(name) => write!(f, "header:{name}"),
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
    fn of_request(&self, head: &Head<'_>) -> Result<String, Error> {
        self.find(*head).map(|client| client.to_string())
    }

    /// Reads an address, or a network that is a key, such as `2001:db8::/64`.
    fn of_text(&self, text: &str) -> Option<String> {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
        Some(self.group(address).to_string())
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

//! The settings of the environment. An empty variable counts as absent.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::header::FORWARDED;
use http::uri::Scheme;
use http::{HeaderName, Uri};
use ipnet::IpNet;
use tower_sluice::Error;
use tower_sluice::key::ClientIp;
use tower_sluice::respond::HeaderStyle;

use serving::open_files;
use serving::port::{Bounds, Timeouts, seconds};

/// The settings of a process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `LISTEN`. Default: `127.0.0.1:3000`.
    pub(crate) listen: String,
    /// `ADMIN`. Default: `127.0.0.1:3001`.
    pub(crate) admin: String,
    /// `UPSTREAM`. Default: none, and the gateway answers itself.
    pub(crate) upstream: Option<Upstream>,
    /// `REDIS_URL`. Default: none, and limits are kept in memory.
    pub(crate) redis_url: Option<String>,
    /// `POLICIES`. Default: the file beside this package's manifest.
    pub(crate) policies: Option<PathBuf>,
    /// `HEADERS`. Default: draft-11.
    pub(crate) headers: HeaderStyle,
    /// `TRUSTED`, networks of proxies. Default: none.
    pub(crate) trusted: Vec<IpNet>,
    /// `FORWARDED`: the one header that `TRUSTED` unlocks. Default: `x-forwarded-for`.
    pub(crate) forwarded: HeaderName,
    /// `ADMIN_TOKEN`. Default: none, and nothing can be changed.
    pub(crate) token: Option<String>,
    /// The bounds of callers, and of connections of HTTP/1.1 to the upstream.
    pub(crate) bounds: Bounds,
    /// `UPSTREAM_TIMEOUT`, until its answer begins. Default: 60 s.
    pub(crate) upstream_timeout: Duration,
}

/// The upstream, to which admitted requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    /// `http` or `https`.
    pub(crate) scheme: Scheme,
    /// True if every request is forwarded by HTTP/2: `h2c://`.
    pub(crate) by_http2: bool,
    pub(crate) authority: http::uri::Authority,
    /// Without a slash at its end; often empty.
    pub(crate) base: String,
}

impl Settings {
    /// Reads the variables that `get` knows.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = &|name: &str| get(name).filter(|value| !value.is_empty());
        let headers = get("HEADERS").unwrap_or_else(|| "draft-11".to_owned());
        let headers =
            headers.parse().map_err(|error: Error| format!("HEADERS is {headers:?}: {error}"))?;
        let forwarded = match get("FORWARDED").map(|name| name.to_ascii_lowercase()).as_deref() {
            None | Some("x-forwarded-for") => HeaderName::from_static("x-forwarded-for"),
            Some("forwarded") => FORWARDED,
            Some(other) => {
                let known = "x-forwarded-for or forwarded";
                return Err(format!("FORWARDED is {other:?}, and must be {known}"));
            }
        };
        let upstream = get("UPSTREAM").map(|url| Upstream::parse(&url)).transpose()?;
        // One by HTTP/1.1 and one by HTTP/2.
        let at_upstream = |upstream: &Upstream| if upstream.by_http2 { 1 } else { 2 };
        let of_caller = 1 + upstream.as_ref().map_or(0, at_upstream);
        let most = open_files::most_connections(open_files::ADMIN, of_caller);
        let trusted = networks(&get("TRUSTED").unwrap_or_default())?;
        let bounds = Bounds::read(get, most, Timeouts::read(get, Timeouts::default())?)?;
        let bounds = Bounds { proxies: trusted.clone(), ..bounds };
        Ok(Self {
            listen: get("LISTEN").unwrap_or_else(|| "127.0.0.1:3000".to_owned()),
            admin: get("ADMIN").unwrap_or_else(|| "127.0.0.1:3001".to_owned()),
            upstream,
            redis_url: get("REDIS_URL"),
            policies: get("POLICIES").map(PathBuf::from),
            headers,
            trusted,
            forwarded,
            token: get("ADMIN_TOKEN"),
            bounds,
            upstream_timeout: seconds(get, "UPSTREAM_TIMEOUT", Duration::from_secs(60))?,
        })
    }
}

/// Converts a network of IPv4 addresses that are mapped into IPv6, since peers are of version 4
/// where they can be.
fn of_version_4(network: IpNet) -> IpNet {
    let bits = network.prefix_len().checked_sub(96);
    match (network, network.addr().to_canonical(), bits) {
        (IpNet::V6(_), address @ IpAddr::V4(_), Some(bits)) => {
            IpNet::new(address, bits).unwrap_or(network)
        }
        _ => network,
    }
}

/// Reads networks and addresses with commas between them. What the crate takes for none is an
/// error, such as `::ffff:10.0.0.0/8`.
fn networks(list: &str) -> Result<Vec<IpNet>, String> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    let network = |part: &str| {
        let address = part.parse::<IpAddr>().map(IpNet::from);
        let network = address.or_else(|_| part.parse::<IpNet>()).map(of_version_4);
        network.map_err(|_| format!("TRUSTED holds {part:?}, which is no network"))
    };
    let found = parts.map(network).collect::<Result<_, _>>()?;
    match ClientIp::new().try_trusted_networks(list) {
        Ok(_) => Ok(found),
        Err(error) => Err(format!("TRUSTED is {list:?}: {error}")),
    }
}

impl Upstream {
    fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("UPSTREAM is {url:?}, {why}");
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("which is no URL: {error}")))?;
        let parts = uri.into_parts();
        let (scheme, by_http2) = match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("http") => (Scheme::HTTP, false),
            Some("https") => (Scheme::HTTPS, false),
            Some("h2c") => (Scheme::HTTP, true),
            _ => return Err(wrong("and must begin with http://, https:// or h2c://")),
        };
        let authority = parts.authority.ok_or_else(|| wrong("and must name a host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("and must not hold a password"));
        }
        let target = parts.path_and_query;
        if target.as_ref().is_some_and(|target| target.query().is_some()) {
            return Err(wrong("and must not hold a query"));
        }
        let base = target.as_ref().map_or("", |target| target.path()).trim_end_matches('/');
        Ok(Self { scheme, by_http2, authority, base: base.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(|name| {
            set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_the_defaults_hold() {
        let settings = read(&[("ADMIN_TOKEN", ""), ("UPSTREAM", "")]).unwrap();
        assert_eq!(settings.listen, "127.0.0.1:3000");
        assert_eq!(settings.admin, "127.0.0.1:3001");
        assert_eq!((settings.upstream, settings.token), (None, None));
        assert_eq!(settings.headers, HeaderStyle::Draft11);
        assert_eq!(settings.forwarded, "x-forwarded-for");
        assert_eq!(settings.trusted, []);
        assert_eq!(settings.bounds.timeouts, Timeouts::default());
        assert!(settings.bounds.connections > 0);
    }

    #[test]
    fn networks_are_of_the_version_of_peers() {
        for (written, read_as) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            let settings = read(&[("TRUSTED", written)]).unwrap();
            assert_eq!(settings.trusted, [read_as.parse().unwrap()], "{written}");
        }
    }

    #[test]
    fn times_are_seconds() {
        let settings = read(&[("BODY_TIMEOUT", "0.5"), ("IDLE_TIMEOUT", "7")]).unwrap();
        assert_eq!(settings.bounds.timeouts.body, Duration::from_millis(500));
        assert_eq!(settings.bounds.timeouts.idle, Duration::from_secs(7));
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_variable() {
        let table = [
            ("HEADERS", "draft-99"),
            ("FORWARDED", "x-real-ip"),
            ("TRUSTED", "10.0.0.0/8,proxy"),
            ("TRUSTED", "10.0.0.0/33"),
            ("TRUSTED", "::ffff:10.0.0.0/8"),
            ("UPSTREAM", "127.0.0.1:80"),
            ("UPSTREAM", "ftp://example.com"),
            ("UPSTREAM", "http://example.com/?a"),
            ("UPSTREAM", "http://user:secret@example.com"),
            ("FIRST_BYTE_TIMEOUT", "0"),
            ("HEAD_TIMEOUT", "-1"),
            ("BODY_TIMEOUT", "1m"),
            ("IDLE_TIMEOUT", "inf"),
            ("UPSTREAM_TIMEOUT", "nan"),
            ("BODY_RATE", "-1"),
            ("MAX_OF_ADDRESS", "0"),
            ("MAX_CONNECTIONS", "0"),
            ("MAX_CONNECTIONS", "18446744073709551615"),
        ];
        for (name, value) in table {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn an_upstream_may_have_a_base() {
        let upstream = Upstream::parse("https://example.com:8443/base/").unwrap();
        assert_eq!(upstream.authority.as_str(), "example.com:8443");
        assert_eq!(upstream.base, "/base");
        assert_eq!(Upstream::parse("http://example.com").unwrap().base, "");
    }

    #[test]
    fn an_upstream_may_speak_http_2_alone() {
        let upstream = Upstream::parse("h2c://example.com:50051").unwrap();
        assert_eq!((upstream.scheme.as_str(), upstream.by_http2), ("http", true));
        assert!(!Upstream::parse("http://example.com").unwrap().by_http2);
    }
}

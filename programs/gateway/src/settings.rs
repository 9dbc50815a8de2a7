//! The settings: an option, and a variable, for each.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use http::header::FORWARDED;
use http::uri::Scheme;
use http::{HeaderName, Uri};
use ipnet::IpNet;
use tower_sluice::key::ClientIp;
use tower_sluice::respond::HeaderStyle;

use serving::open_files;
use serving::port::{Bounds, Callers, seconds};

/// The rest of `--help`.
const MANUAL: &str = "\
Each option has a variable, which it overrides. An empty variable counts as
absent. Others can read a command line with `ps`, so write secrets into
variables. SSL_CERT_FILE names certificates in PEM to trust for https:// and
rediss:// in place of the system's: put the authorities of both into one file.

Files:
  The policies, a TOML file, are read again when they change. A file that is
  wrong changes nothing: stderr and /health of the admin port say why, and the
  table from before stays.

Signals:
  TERM, INT  Accepts no more, and ends with code 0 when what runs has ended; a
             second one ends it at once, with code 1
  HUP        Reads the policies again

Examples:
  gateway --print-config >policies.toml
  gateway --policies policies.toml --upstream http://127.0.0.1:8000
  ADMIN_TOKEN=secret REDIS_URL=redis://127.0.0.1:6379 gateway
";

/// A reverse proxy with limits from a file
#[derive(Debug, Parser)]
#[command(name = "gateway", version)]
#[command(after_long_help = format!("{MANUAL}\n{}", command::EXIT_CODES))]
pub(crate) struct Settings {
    /// The address for callers; port 0 takes a free one, which the first line on stdout names
    #[arg(long, env, default_value = "127.0.0.1:3000")]
    pub(crate) listen: String,
    /// The address for operators: the page, metrics, health, switches and keys
    #[arg(long, env, default_value = "127.0.0.1:3001")]
    pub(crate) admin: String,
    /// The token of operators [default: none, and nothing can be changed]
    #[arg(long, env, hide_env_values = true)]
    pub(crate) admin_token: Option<String>,
    /// The TOML file of policies [default: those of --print-config]
    #[arg(long, env)]
    pub(crate) policies: Option<PathBuf>,
    /// The address of Redis: redis://, redis-cluster://, redis-sentinel://, and rediss.. with TLS
    /// [default: none, and limits are kept in memory]
    #[arg(long, env, hide_env_values = true)]
    pub(crate) redis_url: Option<String>,
    /// The first part of the keys in Redis, where several environments share one
    #[arg(long, env, default_value = "sluice")]
    pub(crate) redis_prefix: String,
    /// Where requests go: http://host:port/base, https://.. or h2c://.. [default: none, and the
    /// gateway answers itself]
    #[arg(long, env, value_parser = Upstream::parse)]
    pub(crate) upstream: Option<Upstream>,
    /// Seconds until the answer of the upstream begins
    #[arg(long, env, value_parser = seconds, default_value = "60")]
    pub(crate) upstream_timeout: Duration,
    /// The rate-limit fields of answers: draft-11, draft-07, draft-06, legacy, legacy-epoch or none
    #[arg(long, env, default_value = "draft-11")]
    pub(crate) headers: HeaderStyle,
    /// Networks of proxies, such as 10.0.0.0/8,127.0.0.1/32 [default: none]
    #[arg(long, env, value_parser = networks, default_value = "", hide_default_value = true)]
    pub(crate) trusted: Networks,
    /// The one header that TRUSTED unlocks: x-forwarded-for or forwarded
    #[arg(long, env, value_parser = forwarded, default_value = "x-forwarded-for")]
    pub(crate) forwarded: HeaderName,
    #[command(flatten)]
    callers: Callers,
}

/// Read as one value, with commas.
type Networks = Vec<IpNet>;

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
    /// The bounds of callers, and of connections of HTTP/1.1 to the upstream.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub(crate) fn bounds(&self) -> Result<Bounds, String> {
        // One by HTTP/1.1 and one by HTTP/2.
        let at_upstream = |upstream: &Upstream| if upstream.by_http2 { 1 } else { 2 };
        let of_caller = 1 + self.upstream.as_ref().map_or(0, at_upstream);
        let most = open_files::most_connections(open_files::ADMIN, of_caller);
        Bounds::new(&self.callers, most, &self.trusted)
    }
}

/// Reads the name of the header.
fn forwarded(name: &str) -> Result<HeaderName, &'static str> {
    match name.to_ascii_lowercase().as_str() {
        "x-forwarded-for" => Ok(HeaderName::from_static("x-forwarded-for")),
        "forwarded" => Ok(FORWARDED),
        _ => Err("it must be x-forwarded-for or forwarded"),
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
fn networks(list: &str) -> Result<Networks, String> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    let network = |part: &str| {
        let address = part.parse::<IpAddr>().map(IpNet::from);
        let network = address.or_else(|_| part.parse::<IpNet>()).map(of_version_4);
        network.map_err(|_| format!("{part:?} is no network"))
    };
    let found = parts.map(network).collect::<Result<_, _>>()?;
    match ClientIp::new().try_trusted_networks(list) {
        Ok(_) => Ok(found),
        Err(error) => Err(error.to_string()),
    }
}

impl Upstream {
    fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("it is no URL: {error}"))?;
        let parts = uri.into_parts();
        let (scheme, by_http2) = match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("http") => (Scheme::HTTP, false),
            Some("https") => (Scheme::HTTPS, false),
            Some("h2c") => (Scheme::HTTP, true),
            _ => return Err("it must begin with http://, https:// or h2c://".to_owned()),
        };
        let authority = parts.authority.ok_or("it must name a host")?;
        if authority.as_str().contains('@') {
            return Err("it must not hold a password".to_owned());
        }
        let target = parts.path_and_query;
        if target.as_ref().is_some_and(|target| target.query().is_some()) {
            return Err("it must not hold a query".to_owned());
        }
        let base = target.as_ref().map_or("", |target| target.path()).trim_end_matches('/');
        Ok(Self { scheme, by_http2, authority, base: base.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[&str]) -> Result<Settings, String> {
        let words = [&["gateway"], options].concat();
        Settings::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn networks_are_of_the_version_of_peers() {
        for (written, read_as) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            let settings = read(&["--trusted", written]).unwrap();
            assert_eq!(settings.trusted, [read_as.parse().unwrap()], "{written}");
        }
        assert_eq!(read(&["--trusted", "10.0.0.0/8, ::1"]).unwrap().trusted.len(), 2);
    }

    #[test]
    fn times_are_seconds() {
        let settings = read(&["--body-timeout", "0.5", "--idle-timeout", "7"]).unwrap();
        let timeouts = settings.bounds().unwrap().timeouts;
        assert_eq!(timeouts.body_timeout, Duration::from_millis(500));
        assert_eq!(timeouts.idle_timeout, Duration::from_secs(7));
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
            let option = format!("--{}={value}", name.to_ascii_lowercase().replace('_', "-"));
            let error = read(&[&option]).and_then(|settings| settings.bounds()).unwrap_err();
            assert!(error.contains(name), "{error}");
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

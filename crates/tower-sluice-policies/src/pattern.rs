//! The requests that a policy takes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::header::HOST;
use http::{HeaderName, Method};
use matchit::Router;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tower_sluice::Error;
use tower_sluice::crates::ipnet::IpNet;
use tower_sluice::key::Head;

use super::path::{Allowed, MAY_ALLOW, Reading, ambiguous_path, in_several_ways, spelled};
use super::policy_key::{Finders, host_name, hosts};
use super::request_values::parameters;
use super::values::{Flag, Texts};

/// The methods that IANA lists, and `PURGE` of caches. Any other method is probably a typing error,
/// and its policy would take no request.
const METHODS: &str = "\
    ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK \
    MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH \
    POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK \
    UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL";

/// The pattern of the requests that a row takes, as the row writes it. A request must meet all of
/// it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pattern {
    #[serde(skip_serializing_if = "Texts::is_empty")]
    path: Texts,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    method: Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<Named>,
    /// The services of gRPC whose methods it takes.
    #[serde(skip_serializing_if = "Texts::is_empty")]
    grpc_service: Texts,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    network: Texts,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    not_network: Texts,
    /// The name that the program gives to the requests of this row.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// True if `/API` equals `/api`.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "Flag::read")]
    pub(crate) ignore_case: bool,
}

/// The headers or parameters that a request must have, each with its value or with any value.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a name, a list of names, or a table of names and values")]
enum Named {
    Present(Texts),
    Holding(BTreeMap<String, String>),
}

impl Named {
    fn each(&self) -> Vec<(&str, Option<&str>)> {
        match self {
            Self::Present(names) => names.0.iter().map(|name| (&**name, None)).collect(),
            Self::Holding(all) => all.iter().map(|(name, own)| (&**name, Some(&**own))).collect(),
        }
    }
}

/// The field `match`: a table, or only paths.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a path, a list of paths, or a table of path, method, header, query, grpc_service, network, not_network, name and ignore_case"
)]
enum RawPattern {
    Paths(Texts),
    Table(serde_json::Map<String, serde_json::Value>),
}

/// Reads the field `match`.
pub(crate) fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
    match RawPattern::deserialize(deserializer)? {
        RawPattern::Table(table) => serde_json::from_value(table.into()).map_err(D::Error::custom),
        RawPattern::Paths(path) => Ok(Pattern { path, ..Pattern::default() }),
    }
}

impl Pattern {
    /// Makes the matcher, for paths with the allowed parts. The error says what is wrong with the
    /// pattern.
    pub(crate) fn matcher(&self, allowed: &Allowed) -> Result<Matcher, String> {
        if self.ignore_case && self.path.is_empty() {
            return Err(String::from(
                "ignore_case needs a path: write one, or leave ignore_case out",
            ));
        }
        let path = |path: &String| {
            let path = path.as_str();
            if !path.starts_with('/') {
                return Err(format!("the path {path:?} does not begin with a slash"));
            }
            let wrong = |why: &dyn fmt::Display| format!("the path {path:?}: {why}");
            let route = route(path).map_err(|why| wrong(&why))?;
            let ambiguous = |part| wrong(&format_args!("{}; {MAY_ALLOW}", in_several_ways(part)));
            allowed.read(&route).map_err(ambiguous)?;
            PathTest::new(&route, self.ignore_case).map_err(|error| wrong(&error))
        };
        let method = |name: &String| {
            let known = METHODS.split(' ').find(|known| known.eq_ignore_ascii_case(name));
            known.and_then(|known| Method::from_bytes(known.as_bytes()).ok()).ok_or_else(|| {
                format!(
                    "{name:?} is not a method that IANA lists; for one of your own match by `name`, or leave `method` out"
                )
            })
        };
        let headers = self.header.as_ref().map(Named::each);
        if headers.as_ref().is_some_and(Vec::is_empty) {
            return Err(String::from("a table of headers is empty"));
        }
        let query = self.query.as_ref().map(Named::each);
        if query.as_ref().is_some_and(Vec::is_empty) {
            return Err(String::from("a table of parameters is empty"));
        }
        let service = |name: &String| {
            let is_name = |part: &str| {
                let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                !part.is_empty() && part.bytes().all(is_letter)
            };
            if !name.split('.').all(is_name) {
                let why = "is not a gRPC service; write it with its package, such as `shop.Orders`";
                return Err(format!("{name:?} {why}"));
            }
            PathTest::new(&format!("/{name}/{{method}}"), false).map_err(|error| error.to_string())
        };
        let network = |text: &String| {
            let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
            let network = text.parse::<IpNet>().ok().or_else(alone).and_then(of_callers);
            network.ok_or_else(|| format!("{text:?} is not a network, such as `10.0.0.0/8`"))
        };
        let networks = |texts: &Texts| texts.0.iter().map(network).collect::<Result<Vec<_>, _>>();
        let header = |(name, value): (&str, Option<&str>)| {
            let found =
                HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a header name"))?;
            // Requests are compared without the blanks that HTTP/2 keeps around a value.
            let value = match value.map(str::trim_ascii) {
                Some(host) if found == HOST => {
                    let is_name = |name: &&str| {
                        name.bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
                    };
                    let name = host_name(host).filter(|_| !host.contains('/'));
                    let name =
                        name.filter(|name| is_name(name) || name.parse::<Ipv6Addr>().is_ok());
                    let why = "is not a host; write one name, an international one as `xn--..`";
                    Some(name.ok_or_else(|| format!("{host:?} {why}"))?.to_ascii_lowercase())
                }
                value => value.map(str::to_owned),
            };
            Ok((found, value))
        };
        Ok(Matcher {
            paths: self.path.0.iter().map(path).collect::<Result<_, _>>()?,
            methods: self.method.0.iter().map(method).collect::<Result<_, _>>()?,
            headers: headers.into_iter().flatten().map(header).collect::<Result<_, String>>()?,
            query: query
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
                .collect(),
            services: self.grpc_service.0.iter().map(service).collect::<Result<_, _>>()?,
            networks: networks(&self.network)?,
            not_networks: networks(&self.not_network)?,
            name: self.name.clone(),
            ignore_case: self.ignore_case,
        })
    }
}

/// Omits the values of headers, since logs have many readers.
impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.each().iter().map(|(name, _)| name)).finish()
    }
}

/// Returns a network of IPv4 addresses that are mapped into IPv6 as one of IPv4, as callers have
/// them. `None` for `::ffff:10.0.0.0/8`, which would mean `::/8`.
fn of_callers(network: IpNet) -> Option<IpNet> {
    match (network, network.addr().to_canonical()) {
        (IpNet::V6(network), mapped @ IpAddr::V4(_)) => {
            IpNet::new(mapped, network.prefix_len().checked_sub(96)?).ok().map(|own| own.trunc())
        }
        _ => Some(network.trunc()),
    }
}

/// Returns a pattern whose literal text has the spelling of the paths that it is compared with. The
/// error names a part that has a meaning only in other routers.
fn route(pattern: &str) -> Result<String, String> {
    let (mut route, mut text) = (String::new(), String::new());
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let placeholder = match rest.get(..2) {
            // An escape of matchit.
            Some(twice @ ("{{" | "}}")) => {
                text.push(next);
                rest = &rest[twice.len()..];
                continue;
            }
            _ if next == '{' => rest.find('}').map_or(rest, |end| &rest[..=end]),
            _ if next == '}' => "}",
            _ => "",
        };
        if placeholder.is_empty() {
            check_text(pattern, pattern.len() - rest.len())?;
            text.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            check_placeholder(placeholder)?;
            route += &spelled(&std::mem::take(&mut text));
            route += placeholder;
            rest = &rest[placeholder.len()..];
        }
    }
    Ok(route + &spelled(&text))
}

/// Returns true if a character may occur in the name of a placeholder.
fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || "_-".contains(character)
}

/// Rejects a character outside of braces that has a meaning in other routers: a policy with such a
/// pattern would take no request.
fn check_text(pattern: &str, at: usize) -> Result<(), String> {
    let start = pattern[..at].rfind('/').map_or(0, |slash| slash + 1);
    let (before, segment) = pattern.split_at(start);
    let is_first = at == start;
    let byte = pattern.as_bytes()[at];
    let character = char::from(byte);
    let why = match byte {
        b'*' => {
            let meant = match is_first && !segment.contains('/') {
                true => format!("`{before}{{*rest}}`"),
                false => String::from("`{name}` for a segment"),
            };
            format!("a `*` outside of braces is not a wildcard; write {meant}")
        }
        b':' | b'<' | b'[' if is_first => {
            let name: String = segment.chars().skip(1).take_while(|one| is_of_name(*one)).collect();
            let name = if name.is_empty() { "name" } else { &name };
            format!("a segment that begins with `{character}` is plain text; write `{{{name}}}`")
        }
        b'?' | b'#' => return Err(format!("a path ends before the `{character}`")),
        _ => return Ok(()),
    };
    Err(format!("{why}; `%{byte:02X}` is the character itself"))
}

/// Rejects a placeholder with more than a name in its braces. matchit would read a type, an
/// expression or dots as part of the name, and match one segment.
fn check_placeholder(placeholder: &str) -> Result<(), String> {
    let inside = placeholder.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let name = inside.map(|inside| inside.strip_prefix('*').unwrap_or(inside));
    match name {
        Some(name) if name.is_empty() || !name.chars().all(is_of_name) => Err(format!(
            "`{placeholder}` is not a placeholder; write `{{name}}` for a segment, or `{{*name}}` for all that follows"
        )),
        // The router reports a single brace.
        _ => Ok(()),
    }
}

/// Returns true if any value fits, or if there are some and `all` of them do.
fn fit(mut each: impl Iterator<Item = bool>, all: bool) -> bool {
    match all {
        true => each.next() == Some(true) && each.all(|fits| fits),
        false => each.any(|fits| fits),
    }
}

/// Decides if a policy takes a request.
#[derive(Clone)]
pub(crate) struct Matcher {
    paths: Vec<PathTest>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, Option<String>)>,
    query: Vec<(String, Option<String>)>,
    services: Vec<PathTest>,
    networks: Vec<IpNet>,
    not_networks: Vec<IpNet>,
    name: Option<String>,
    pub(crate) ignore_case: bool,
}

/// One pattern of a path. Routes of one router may not overlap, so each has its own.
#[derive(Clone)]
struct PathTest {
    route: String,
    router: Router<()>,
}

impl PathTest {
    fn new(route: &str, ignore_case: bool) -> Result<Self, matchit::InsertError> {
        // As paths are read: a slash at the end makes no difference.
        let shorter = route.strip_suffix('/').filter(|shorter| !shorter.is_empty());
        let mut route = shorter.unwrap_or(route).to_owned();
        if ignore_case {
            route.make_ascii_lowercase();
        }
        let mut router = Router::new();
        router.insert(&route, ())?;
        Ok(Self { route, router })
    }

    /// Returns the beginning of the paths that it takes: the whole segments before the first
    /// placeholder.
    fn beginning(&self) -> &str {
        match self.route.find('{') {
            Some(end) => &self.route[..self.route[..end].rfind('/').unwrap_or(0)],
            None => &self.route,
        }
    }
}

impl Matcher {
    /// Returns true if it takes a request with any of these paths. The request may have a name. A
    /// request with several hosts, or several lines or parameters of one name, is taken if any of
    /// them fits. To be `exempt`, all must fit: nobody knows which one a server reads.
    ///
    /// # Errors
    ///
    /// If that is not known: servers read a path in several ways, or the caller has no address.
    pub(crate) fn takes(
        &self,
        head: &Head<'_>,
        paths: &[Reading<'_>],
        name: Option<&str>,
        exempt: bool,
        finders: &Finders,
    ) -> Result<bool, Error> {
        let has_header = |(name, value): &(HeaderName, Option<String>)| {
            if name == HOST {
                // HTTP/2 has no such field, and a target with a host outweighs it.
                let is_it = |host: Option<&str>| match (value, host) {
                    (Some(value), Some(host)) => host.eq_ignore_ascii_case(value),
                    (value, _) => value.is_none(),
                };
                return fit(hosts(head).map(is_it), exempt);
            }
            let lines = head.headers().get_all(name).iter();
            let lines = lines.map(|line| line.as_bytes().trim_ascii());
            let is_it = |line: &[u8]| value.as_ref().is_none_or(|value| line == value.as_bytes());
            fit(lines.map(is_it), exempt)
        };
        // A server may take `post` for POST.
        let method = head.method().as_str();
        let is_method = |own: &Method| own.as_str().eq_ignore_ascii_case(method);
        let has_parameter = |(name, value): &(String, Option<String>)| {
            let is_it = |own: String| value.as_ref().is_none_or(|value| own == *value);
            fit(parameters(head, name).map(is_it), exempt)
        };
        let is_rest_right = self.name.as_deref() == name
            && (self.methods.is_empty() || self.methods.iter().any(is_method))
            && self.headers.iter().all(has_header)
            && self.query.iter().all(has_parameter);
        if !is_rest_right {
            return Ok(false);
        }
        let all = [(&self.paths, self.ignore_case), (&self.services, false)];
        for (own, ignore_case) in all.into_iter().filter(|(own, _)| !own.is_empty()) {
            let takes = |path: &str| own.iter().any(|own| own.router.at(path).is_ok());
            let is_taken = paths.iter().try_fold(false, |is_taken, path| {
                let path = path.as_deref().map_err(|part| ambiguous_path(part))?;
                Ok::<_, Error>(
                    is_taken
                        || match ignore_case {
                            true => takes(&path.to_ascii_lowercase()),
                            false => takes(path),
                        },
                )
            });
            if !is_taken? {
                return Ok(false);
            }
        }
        if self.networks.is_empty() && self.not_networks.is_empty() {
            return Ok(true);
        }
        let address = finders.addresses.of_request(head)?.0;
        let is_in = |networks: &[IpNet]| networks.iter().any(|one| one.contains(&address));
        Ok((self.networks.is_empty() || is_in(&self.networks)) && !is_in(&self.not_networks))
    }

    /// Returns the beginning of each path that it takes: the whole segments before the first
    /// placeholder. `None` if it may take every path.
    pub(crate) fn beginnings(&self) -> Option<impl Iterator<Item = &str>> {
        let paths = if self.paths.is_empty() { &self.services } else { &self.paths };
        (!paths.is_empty()).then(|| paths.iter().map(PathTest::beginning))
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("methods", &self.methods).finish_non_exhaustive()
    }
}

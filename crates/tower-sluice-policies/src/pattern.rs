//! The requests that a policy takes.

use std::collections::BTreeMap;
use std::fmt;

use http::header::HOST;
use http::{HeaderName, Method};
use matchit::Router;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tower_sluice::key::Head;

use super::path::{Allowed, MAY_ALLOW, Reading, in_several_ways, spelled};
use super::policy_key::{host_name, hosts};
use super::values::Texts;

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
    header: Option<Headers>,
    /// The name that the program gives to the requests of this row.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// True if `/API` equals `/api`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ignore_case: bool,
}

/// The headers that a request must have, each with its value or with any value.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a header, or a table of names and values")]
enum Headers {
    Present(Texts),
    Holding(BTreeMap<String, String>),
}

impl Headers {
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
    expecting = "a path, a list of paths, or a table of path, method, header, name and ignore_case"
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
        let headers = self.header.as_ref().map(Headers::each);
        if headers.as_ref().is_some_and(Vec::is_empty) {
            return Err(String::from("a table of headers is empty"));
        }
        let header = |(name, value): (&str, Option<&str>)| {
            let found =
                HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a header name"))?;
            // Requests are compared without the blanks that HTTP/2 keeps around a value.
            let value = match value.map(str::trim_ascii) {
                Some(host) if found == HOST => {
                    let name = host_name(host).ok_or_else(|| format!("{host:?} is not a host"))?;
                    Some(name.to_ascii_lowercase())
                }
                value => value.map(str::to_owned),
            };
            Ok((found, value))
        };
        Ok(Matcher {
            paths: self.path.0.iter().map(path).collect::<Result<_, _>>()?,
            methods: self.method.0.iter().map(method).collect::<Result<_, _>>()?,
            headers: headers.into_iter().flatten().map(header).collect::<Result<_, String>>()?,
            name: self.name.clone(),
            ignore_case: self.ignore_case,
        })
    }
}

/// Omits the values of headers, since logs have many readers.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.each().iter().map(|(name, _)| name)).finish()
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

/// Decides if a policy takes a request.
#[derive(Clone)]
pub(crate) struct Matcher {
    paths: Vec<PathTest>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, Option<String>)>,
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
    /// Returns true if it takes a request with any of these paths. The request may have a name.
    /// `Err`: the part of a path that servers read in several ways.
    pub(crate) fn takes(
        &self,
        head: &Head<'_>,
        paths: &[Reading<'_>],
        name: Option<&str>,
    ) -> Result<bool, &'static str> {
        let has_header = |(name, value): &(HeaderName, Option<String>)| {
            if name == HOST {
                // HTTP/2 has no such field, and a target with a host outweighs it.
                let is_it = |host: Option<&str>| match (value, host) {
                    (Some(value), Some(host)) => host.eq_ignore_ascii_case(value),
                    (value, _) => value.is_none(),
                };
                return hosts(head).any(is_it);
            }
            let lines = head.headers().get_all(name).iter();
            let mut lines = lines.map(|line| line.as_bytes().trim_ascii());
            lines.any(|line| value.as_ref().is_none_or(|value| line == value.as_bytes()))
        };
        // A server may take `post` for POST.
        let method = head.method().as_str();
        let is_method = |own: &Method| own.as_str().eq_ignore_ascii_case(method);
        let is_rest_right = self.name.as_deref() == name
            && (self.methods.is_empty() || self.methods.iter().any(is_method))
            && self.headers.iter().all(has_header);
        if !is_rest_right || self.paths.is_empty() {
            return Ok(is_rest_right);
        }
        let takes = |path: &str| self.paths.iter().any(|own| own.router.at(path).is_ok());
        paths.iter().try_fold(false, |is_taken, path| {
            let path = path.as_deref().map_err(|part| *part)?;
            Ok(is_taken
                || match self.ignore_case {
                    true => takes(&path.to_ascii_lowercase()),
                    false => takes(path),
                })
        })
    }

    /// Returns the beginning of each path that it takes: the whole segments before the first
    /// placeholder. `None` if it may take every path.
    pub(crate) fn beginnings(&self) -> Option<impl Iterator<Item = &str>> {
        (!self.paths.is_empty()).then(|| self.paths.iter().map(PathTest::beginning))
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("methods", &self.methods).finish_non_exhaustive()
    }
}

//! The requests that a policy takes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use http::header::HOST;
use http::{HeaderName, Method};
use matchit::Router;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::path::{Readings, literal, without_parameters};
use super::policy_key::{host_name, hosts};
use super::row_fields::OneOrMany;
use crate::http::Head;

/// The methods that IANA lists, and `PURGE` of caches. Any other method is probably a typing error,
/// and its policy would take no request.
const METHODS: &str = "\
    ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK \
    MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH \
    POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK \
    UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL";

/// The pattern of the requests that a row takes, as the row writes it. A request must meet all of
/// it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pattern {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    path: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    method: Vec<String>,
    /// The value that each header must have, by its name. `None`: the header must only be present.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "as_written",
        deserialize_with = "headers"
    )]
    header: HeaderTests,
    /// The name that the program gives to the requests of this row.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// True if `/API` equals `/api`.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) ignore_case: bool,
}

/// The message about an empty list.
const NOTHING: &str = "an empty list would take no request";

fn is_false(value: &bool) -> bool {
    !value
}

/// The field `match`: a table, or only paths.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a path, a list of paths, or a table of path, method, header, name and ignore_case"
)]
pub(super) enum Written {
    Paths(OneOrMany),
    Table(serde_json::Map<String, serde_json::Value>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a header, or a table of names and values")]
enum Headers {
    Present(OneOrMany),
    Holding(BTreeMap<String, String>),
}

/// Writes headers that must only be present as a list, and others with their values.
fn as_written<S: Serializer>(headers: &HeaderTests, serializer: S) -> Result<S::Ok, S::Error> {
    match headers.values().any(Option::is_some) {
        true => headers.serialize(serializer),
        false => serializer.collect_seq(headers.keys()),
    }
}

fn listed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Option::<OneOrMany>::deserialize(deserializer)?.map(Vec::from) {
        Some(values) if values.is_empty() => Err(D::Error::custom(NOTHING)),
        values => Ok(values.unwrap_or_default()),
    }
}

type HeaderTests = BTreeMap<String, Option<String>>;

fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderTests, D::Error> {
    let headers: HeaderTests = match Option::deserialize(deserializer)? {
        None => return Ok(BTreeMap::new()),
        Some(Headers::Present(names)) => {
            Vec::from(names).into_iter().map(|name| (name, None)).collect()
        }
        Some(Headers::Holding(values)) => {
            values.into_iter().map(|(name, value)| (name, Some(value))).collect()
        }
    };
    if headers.is_empty() { Err(D::Error::custom(NOTHING)) } else { Ok(headers) }
}

impl TryFrom<Written> for Pattern {
    type Error = serde_json::Error;

    fn try_from(written: Written) -> Result<Self, serde_json::Error> {
        match written {
            Written::Table(table) => serde_json::from_value(table.into()),
            Written::Paths(paths) => match Vec::from(paths) {
                path if path.is_empty() => Err(serde_json::Error::custom(NOTHING)),
                path => Ok(Self { path, ..Self::default() }),
            },
        }
    }
}

impl Pattern {
    /// Makes the matcher. The error says what is wrong with the pattern.
    pub(super) fn matcher(&self) -> Result<Matcher, String> {
        if self.ignore_case && self.path.is_empty() {
            return Err(String::from(
                "ignore_case needs a path: write one, or leave ignore_case out",
            ));
        }
        let mut paths = Vec::new();
        for path in &self.path {
            let wrong = |why: &dyn fmt::Display| format!("the path {path:?}: {why}");
            if !path.starts_with('/') {
                return Err(format!("the path {path:?} does not begin with a slash"));
            }
            let route = route(path).map_err(|why| wrong(&why))?;
            let mut before_last = route.split('/').skip(1).peekable();
            while let Some(segment) = before_last.next() {
                let is_last = before_last.peek().is_none();
                if [".", ".."].contains(&segment) || segment.is_empty() && !is_last {
                    return Err(wrong(&"no path has an empty segment, `.` or `..`"));
                }
            }
            paths.push(PathTest::new(route, self.ignore_case).map_err(|error| wrong(&error))?);
        }
        let method = |name: &String| {
            let known = METHODS.split(' ').find(|known| known.eq_ignore_ascii_case(name));
            known.and_then(|known| Method::from_bytes(known.as_bytes()).ok()).ok_or_else(|| {
                format!(
                    "{name:?} is not a method that IANA lists; for one of your own match by `name`, or leave `method` out"
                )
            })
        };
        let header = |(name, value): (&String, &Option<String>)| {
            let found =
                HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a header name"))?;
            // Requests are compared without the blanks that HTTP/2 keeps around a value.
            let value = match value.as_deref().map(str::trim_ascii) {
                Some(host) if found == HOST => {
                    let name = host_name(host).ok_or_else(|| format!("{host:?} is not a host"))?;
                    Some(name.to_ascii_lowercase())
                }
                value => value.map(str::to_owned),
            };
            Ok((found, value))
        };
        let mut methods: Vec<_> = self.method.iter().map(method).collect::<Result<_, _>>()?;
        // Lists are compared.
        methods.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        methods.dedup();
        Ok(Matcher {
            paths,
            methods,
            headers: self.header.iter().map(header).collect::<Result<_, String>>()?,
            name: self.name.clone(),
            ignore_case: self.ignore_case,
        })
    }
}

/// Omits the values of headers, since logs have many readers.
impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern")
            .field("path", &self.path)
            .field("method", &self.method)
            .field("header", &self.header.keys())
            .field("name", &self.name)
            .field("ignore_case", &self.ignore_case)
            .finish()
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
            route += &literal(&std::mem::take(&mut text));
            route += placeholder;
            rest = &rest[placeholder.len()..];
        }
    }
    Ok(route + &literal(&text))
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
        b'?' | b'#' => format!("a path ends before the `{character}`"),
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
pub(super) struct Matcher {
    paths: Vec<PathTest>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, Option<String>)>,
    name: Option<String>,
    pub(super) ignore_case: bool,
}

/// The readings of a path that a policy takes. Of two paths of one request, the greater counts.
#[derive(Clone, Copy, PartialEq, PartialOrd, Eq, Ord)]
pub(super) enum Takes {
    None,
    /// The path has too many readings to check.
    Unknown,
    Some,
    All,
}

/// One pattern of a path. Routes of one router may not overlap, so each has its own.
#[derive(Clone)]
struct PathTest {
    route: String,
    /// The route, with and without a slash at its end: many servers treat both as one.
    router: Router<()>,
    /// Routes of other policies that differ only by that slash or by parameters. This policy does
    /// not take their paths.
    left: Vec<Router<()>>,
}

impl PathTest {
    fn new(mut route: String, ignore_case: bool) -> Result<Self, matchit::InsertError> {
        if ignore_case {
            route.make_ascii_lowercase();
        }
        let mut router = Router::new();
        router.insert(&route, ())?;
        match route.strip_suffix('/') {
            Some("") => {}
            Some(shorter) => router.insert(shorter, ())?,
            None if route.contains("{*") => {}
            None => router.insert(format!("{route}/"), ())?,
        }
        Ok(Self { route, router, left: Vec::new() })
    }

    fn takes(&self, reading: &str, as_written: Option<&str>) -> bool {
        let is_left = |path| self.left.iter().any(|route| is_as_written(route, path));
        self.router.at(reading).is_ok() && !as_written.is_some_and(is_left)
    }

    /// Returns the route without the names of its placeholders.
    fn shape(&self) -> String {
        let mut pieces = self.route.split('{');
        let mut shape = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (name, rest) = piece.split_once('}').unwrap_or((piece, ""));
            shape.extend([if name.starts_with('*') { "{*}" } else { "{}" }, rest]);
        }
        shape
    }

    /// Returns the beginning of the paths that it takes: the whole segments before the first
    /// placeholder.
    fn beginning(&self) -> &str {
        let literal = match self.route.find('{') {
            Some(end) => &self.route[..self.route[..end].rfind('/').unwrap_or(0)],
            None => &self.route,
        };
        literal.strip_suffix('/').filter(|shorter| !shorter.is_empty()).unwrap_or(literal)
    }
}

/// Returns true if a route takes a path that has exactly the parameters of the route.
fn is_as_written(route: &Router<()>, path: &str) -> bool {
    route.at(path).is_ok_and(|found| found.params.iter().all(|(_, value)| !value.contains(';')))
}

/// Gives each policy the spelling of its row: if one row has `/login/` and another `/login`, each
/// takes its own. The same is true for `/a;v=1` and `/a`.
pub(super) fn tell_apart<'a>(matchers: impl Iterator<Item = &'a mut Matcher>) {
    let mut matchers: Vec<_> = matchers.collect();
    // Grouped by the text of routes without parameters and slashes at the end, then by their
    // shapes.
    let mut alike: HashMap<String, HashMap<String, Vec<(usize, usize)>>> = HashMap::new();
    for (place, matcher) in matchers.iter().enumerate() {
        for (index, path) in matcher.paths.iter().enumerate() {
            let shape = path.shape();
            let common = without_parameters(&shape).unwrap_or_else(|| shape.clone());
            let common = common.strip_suffix('/').unwrap_or(&common).to_owned();
            alike.entry(common).or_default().entry(shape).or_default().push((place, index));
        }
    }
    for shapes in alike.values() {
        for (shape, own) in shapes {
            for (_, others) in shapes.iter().filter(|(other, _)| *other != shape) {
                for (place, index) in own {
                    let takes =
                        |(other, _): &&(usize, _)| matchers[*other].takes_all_of(matchers[*place]);
                    let Some((other, at)) = others.iter().find(takes) else { continue };
                    let mut left = Router::new();
                    let inserted = left.insert(&matchers[*other].paths[*at].route, ());
                    inserted.expect("a route of a router");
                    matchers[*place].paths[*index].left.push(left);
                }
            }
        }
    }
}

impl Matcher {
    /// Returns which readings of a request's path it takes. The request may have a name.
    pub(super) fn takes(&self, head: &Head<'_>, path: &Readings<'_>, name: Option<&str>) -> Takes {
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
        match is_rest_right {
            false => Takes::None,
            true if self.paths.is_empty() => Takes::All,
            true => self.takes_path(path),
        }
    }

    fn takes_path(&self, path: &Readings<'_>) -> Takes {
        let Some(readings) = path.each() else { return Takes::Unknown };
        let in_case = |reading| match self.ignore_case {
            true => Cow::Owned(str::to_ascii_lowercase(reading)),
            false => Cow::Borrowed(reading),
        };
        let as_written = path.as_written().map(in_case);
        let takes = |reading: &str| {
            self.paths.iter().any(|path| path.takes(reading, as_written.as_deref()))
        };
        let (mut some, mut all) = (false, true);
        for reading in readings.map(in_case) {
            let is_taken = takes(&reading);
            (some, all) = (some || is_taken, all && is_taken);
        }
        match (some, all) {
            (false, _) => Takes::None,
            (true, false) => Takes::Some,
            (true, true) => Takes::All,
        }
    }

    /// Returns true if it takes every request that `other` takes, without regard to paths. Returns
    /// false for two different lists of methods or headers, even if one contains the other.
    fn takes_all_of(&self, other: &Self) -> bool {
        (self.ignore_case || !other.ignore_case)
            && (self.methods.is_empty() || self.methods == other.methods)
            && (self.headers.is_empty() || self.headers == other.headers)
            && self.name == other.name
    }

    /// Returns the beginning of each path that it takes: the whole segments before the first
    /// placeholder, in lower case if it ignores case. `None` if it may take every path.
    pub(super) fn beginnings(&self) -> Option<impl Iterator<Item = &str>> {
        (!self.paths.is_empty()).then(|| self.paths.iter().map(PathTest::beginning))
    }
}

debug_by_name!([] Matcher: methods);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_left_once_however_many_rows_write_it() {
        let paths = ["/login", "/login/", "/login", "/login/", "/login;v=1"];
        let matcher = |path: &&str| {
            let path = vec![(*path).to_owned()];
            Pattern { path, ..Pattern::default() }.matcher().expect("a path")
        };
        let mut matchers: Vec<_> = paths.iter().map(matcher).collect();
        tell_apart(matchers.iter_mut());
        assert!(matchers.iter().all(|matcher| matcher.paths[0].left.len() == 2));
    }
}

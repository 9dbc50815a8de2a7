//! Which requests a policy takes.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderName, Method};
use matchit::Router;
use serde::{Deserialize, Serialize, Serializer};

use super::fields::OneOrMany;
use super::path::{Readings, literal};
use crate::Head;

/// Which requests a row takes, as it writes it. All that it states must hold.
#[derive(Clone, Default, PartialEq, Serialize)]
pub(super) struct Pattern {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    path: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    method: Vec<String>,
    /// By its name, what a header must hold; `None` if it must only be there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "as_written")]
    header: BTreeMap<String, Option<String>>,
    /// Such a row takes only requests that are given this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// The field `match`: a table, or a path alone.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a path, or a table of path, method, header and name")]
enum Written {
    Path(String),
    Table(serde_json::Value),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    path: Option<OneOrMany>,
    method: Option<OneOrMany>,
    header: Option<Headers>,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a header, or a table of names and values")]
enum Headers {
    Present(OneOrMany),
    Holding(BTreeMap<String, String>),
}

/// Headers that must only be there as a list, and others with what they must hold.
fn as_written<S: Serializer>(
    headers: &BTreeMap<String, Option<String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match headers.values().any(Option::is_some) {
        true => headers.serialize(serializer),
        false => serializer.collect_seq(headers.keys()),
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let table = match Written::deserialize(deserializer)? {
            Written::Path(path) => return Ok(Self { path: vec![path], ..Self::default() }),
            Written::Table(table) => table,
        };
        let Table { path, method, header, name } =
            serde_json::from_value(table).map_err(D::Error::custom)?;
        let listed = |what, values: Option<Vec<String>>| match values {
            Some(values) if values.is_empty() => Err(D::Error::custom(nothing(what))),
            values => Ok(values.unwrap_or_default()),
        };
        let header = match header {
            None => BTreeMap::new(),
            Some(Headers::Present(names)) => {
                let names = listed("header", Some(names.into()))?;
                names.into_iter().map(|name| (name, None)).collect()
            }
            Some(Headers::Holding(values)) if values.is_empty() => {
                return Err(D::Error::custom(nothing("header")));
            }
            Some(Headers::Holding(values)) => {
                values.into_iter().map(|(name, value)| (name, Some(value))).collect()
            }
        };
        let [path, method] = [path, method].map(|values| values.map(Vec::from));
        Ok(Self { path: listed("path", path)?, method: listed("method", method)?, header, name })
    }
}

/// What is wrong with a list that names nothing.
fn nothing(what: &str) -> String {
    format!("{what} is empty, and would take no request")
}

impl Pattern {
    /// Takes a supplier's interface: everything under its name.
    pub(super) fn interface(name: &str) -> Self {
        let path = vec![format!("/{name}"), format!("/{name}/"), format!("/{name}/{{*rest}}")];
        Self { path, ..Self::default() }
    }

    /// The matcher of it, or what is wrong with it.
    pub(super) fn matcher(&self) -> Result<Matcher, String> {
        let mut paths = Vec::new();
        for path in &self.path {
            let wrong = |why: &dyn fmt::Display| format!("the path {path:?}: {why}");
            if !path.starts_with('/') {
                return Err(format!("the path {path:?} does not begin with a slash"));
            }
            let route = route(path);
            let mut before_last = route.split('/').skip(1).peekable();
            while let Some(segment) = before_last.next() {
                let is_last = before_last.peek().is_none();
                if [".", ".."].contains(&segment) || segment.is_empty() && !is_last {
                    return Err(wrong(&"no path has an empty segment, `.` or `..`"));
                }
            }
            let mut router = Router::new();
            router.insert(&route, ()).map_err(|error| wrong(&error))?;
            paths.push((route, router));
        }
        let method = |name: &String| {
            let method = Method::from_bytes(name.to_ascii_uppercase().as_bytes());
            method.map_err(|_| format!("{name:?} is no method"))
        };
        let header = |(name, value): (&String, &Option<String>)| {
            let found = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no header"));
            found.map(|found| (found, value.clone()))
        };
        Ok(Matcher {
            paths,
            methods: self.method.iter().map(method).collect::<Result<_, _>>()?,
            headers: self.header.iter().map(header).collect::<Result<_, _>>()?,
            name: self.name.clone(),
        })
    }
}

/// Without the values of headers: what stands in logs is read by many.
impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern")
            .field("path", &self.path)
            .field("method", &self.method)
            .field("header", &self.header.keys())
            .field("name", &self.name)
            .finish()
    }
}

/// A pattern whose literal text is in the spelling of the paths that it is held against.
fn route(pattern: &str) -> String {
    let (mut route, mut text) = (String::new(), String::new());
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let placeholder = match rest.get(..2) {
            // An escape, as matchit has it.
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
            text.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            route += &literal(&std::mem::take(&mut text));
            route += placeholder;
            rest = &rest[placeholder.len()..];
        }
    }
    route + &literal(&text)
}

/// Decides whether a policy takes a request.
#[derive(Clone)]
pub(super) struct Matcher {
    /// One for each path, since routes of one router may not overlap.
    paths: Vec<(String, Router<()>)>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, Option<String>)>,
    name: Option<String>,
}

impl Matcher {
    /// Whether it takes a request with a path of these readings, which may have been given a name.
    pub(super) fn matches(&self, head: &Head<'_>, path: &Readings<'_>, name: Option<&str>) -> bool {
        let has_header = |(name, value): &(HeaderName, Option<String>)| {
            let mut lines = head.headers().get_all(name).iter();
            lines.any(|line| value.as_ref().is_none_or(|value| line.as_bytes() == value.as_bytes()))
        };
        let takes = |path: &str| self.paths.iter().any(|(_, router)| router.at(path).is_ok());
        self.name.as_deref() == name
            && (self.methods.is_empty() || self.methods.contains(head.method()))
            && self.headers.iter().all(has_header)
            && (self.paths.is_empty() || path.each().is_none_or(|mut readings| readings.any(takes)))
    }

    /// How each path that it takes begins: the whole segments before the first placeholder. `None`
    /// if it takes every path.
    pub(super) fn beginnings(&self) -> Option<impl Iterator<Item = &str>> {
        let beginning = |(route, _): &'_ (String, _)| -> usize {
            let literal = route.find('{').map(|end| route[..end].rfind('/').unwrap_or(0));
            literal.unwrap_or(route.len())
        };
        let each = self.paths.iter().map(move |path| &path.0[..beginning(path)]);
        (!self.paths.is_empty()).then_some(each)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("methods", &self.methods).finish_non_exhaustive()
    }
}

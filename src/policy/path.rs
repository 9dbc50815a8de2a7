//! The readings of a path: all paths that servers may see in one spelling.

use std::borrow::Cow;
use std::cell::OnceCell;

/// The most readings of one path. Honest spellings have a few; only an attack that combines many
/// tricks has more.
const MAX_READINGS: usize = 64;

/// The most bytes that are read to find the readings.
const MAX_WORK: usize = 256 * 1_024;

/// Returns true for the bytes that a path may have unencoded. All others are percent-encoded.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"%?#{}\\".contains(&byte)
}

/// The bytes that may end or change a segment. If one is encoded, it stays encoded until a step
/// decodes it, since some servers split segments before they decode.
const STRUCTURE: &[u8] = b"/.;";

/// Paths that servers may read in one path, each in the spelling of [`literal`].
///
/// A server applies some of [`STEPS`], in its own order, and decodes a path once, or twice if it is
/// behind another server. The readings are the results of all steps in every order, so each
/// server's reading is among them.
pub(super) struct Readings<'a> {
    /// `None`: there are too many.
    all: Option<Vec<Cow<'a, str>>>,
    /// The number of readings of servers that decode once. The others decode again.
    once: usize,
    resource: OnceCell<Option<String>>,
}

/// One change that servers make to a path. `None` if it changes nothing.
type Step = fn(&str) -> Option<String>;

// `canonical` applies them in this order. Blanks also stand before parameters, hence twice.
const STEPS: [Step; 14] = [
    without_unicode_escapes,
    |path| replaced(path, "%2E", "."),
    |path| replaced(path, "%2F", "/"),
    |path| replaced(path, "%3B", ";"),
    |path| replaced(path, "%5C", "/"),
    |path| replaced(path, "\\", "/"),
    without_query,
    without_blanks,
    without_parameters_of_dots,
    without_parameters,
    without_blanks,
    without_empty_segments,
    without_host,
    without_dots,
];

impl<'a> Readings<'a> {
    /// Finds the readings of a path: one, unless its spelling is unusual.
    pub(super) fn of(path: &'a str) -> Self {
        let these = |all, once| Self { all, once, resource: OnceCell::new() };
        if is_plainly_spelled(path) {
            return these(Some(vec![path.into()]), 1);
        }
        let mut found = vec![spelled(path)];
        let (mut work, mut once) = (0, 0);
        let is_complete = add_steps(&mut found, 0, &mut work) && {
            once = found.len();
            for place in 0..once {
                let again = decoded_again(&found[place]);
                add(&mut found, again);
            }
            add_steps(&mut found, once, &mut work)
        };
        these(is_complete.then(|| found.into_iter().map(Cow::Owned).collect()), once)
    }

    /// Returns all readings; the first is the path as it is written. `None` if there are too many.
    pub(super) fn each(&self) -> Option<impl Iterator<Item = &str>> {
        let readings = self.all.as_ref()?;
        Some(readings.iter().map(|reading| &**reading))
    }

    /// Returns one path for all spellings of it, so that no resource has two keys. `None`: servers
    /// may read several resources in this path.
    pub(super) fn resource(&self) -> Option<&str> {
        let find = || {
            let form = |(place, reading)| canonical(reading, place < self.once);
            let mut forms = self.each()?.enumerate().map(form);
            let first = forms.next()?;
            forms.all(|form| form == first).then(|| first.into_owned())
        };
        self.resource.get_or_init(find).as_deref()
    }

    /// Returns the path, if its spelling is usual except for parameters.
    pub(super) fn as_written(&self) -> Option<&str> {
        match self.all.as_deref()? {
            [path] => Some(path),
            [path, other] if without_parameters(path).as_deref() == Some(other) => Some(path),
            _ => None,
        }
    }
}

/// Adds the results of the steps in every order, for the paths from this place on. Returns true if
/// the bounds allowed all of them.
fn add_steps(found: &mut Vec<String>, from: usize, work: &mut usize) -> bool {
    let mut place = from;
    while place < found.len() {
        if found.len() > MAX_READINGS || *work > MAX_WORK {
            return false;
        }
        *work += found[place].len() * STEPS.len();
        for step in STEPS {
            let next = step(&found[place]);
            add(found, next);
        }
        place += 1;
    }
    true
}

fn add(found: &mut Vec<String>, path: Option<String>) {
    if let Some(path) = path.filter(|path| !found.contains(path)) {
        found.push(path);
    }
}

/// Returns the reading of a server that applies every step and ignores a slash at the end. It may
/// decode once more.
fn canonical(path: &str, decodes: bool) -> Cow<'_, str> {
    if !path.starts_with('/') || is_plainly_spelled(path) && (path == "/" || !path.ends_with('/')) {
        return path.into();
    }
    let written = spelled(path);
    let mut path = decoded_again(&written).filter(|_| decodes).unwrap_or(written);
    path = STEPS.iter().fold(path, |path, step| step(&path).unwrap_or(path));
    while path.len() > 1 && path.ends_with('/') {
        path.pop();
        trim_blanks(&mut path);
    }
    path.into()
}

/// Returns true if a path has no other reading than itself. A path that does not begin with a slash
/// is not the path of a resource.
fn is_plainly_spelled(path: &str) -> bool {
    let mut before = 0;
    let is_odd = |byte| {
        let is_odd = !is_plain(byte) || byte == b';' || before == b'/' && b"/.".contains(&byte);
        before = byte;
        is_odd
    };
    !path.starts_with('/') || !path.bytes().any(is_odd)
}

/// Returns the path with every byte decoded, and with backslashes as slashes.
pub(super) fn literal(path: &str) -> String {
    let slashes = spelled(path).replace("%2F", "/").replace("%5C", "/").replace('\\', "/");
    slashes.replace("%2E", ".").replace("%3B", ";")
}

/// Returns the path with each byte in one spelling: unencoded, or percent-encoded in upper case.
/// The bytes of [`STRUCTURE`] stay as they were written.
fn spelled(path: &str) -> String {
    let mut result = String::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let [first, rest @ ..] = bytes {
        let escaped = if *first == b'%' { decoded(rest) } else { None };
        bytes = if escaped.is_some() { &rest[2..] } else { rest };
        match (escaped, *first) {
            (None, b'\\') => result.push('\\'),
            (Some(byte), _) if STRUCTURE.contains(&byte) => {
                result.push_str(&format!("%{byte:02X}"))
            }
            (Some(byte), _) | (None, byte) if is_plain(byte) => result.push(byte.into()),
            (Some(byte), _) | (None, byte) => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

/// Decodes two hexadecimal digits to a byte.
fn decoded(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the path as a second server reads it, after the first one has decoded it.
fn decoded_again(path: &str) -> Option<String> {
    let again = spelled(&replaced(path, "%25", "%")?);
    (again != path).then_some(again)
}

fn replaced(path: &str, from: &str, to: &str) -> Option<String> {
    path.contains(from).then(|| path.replace(from, to))
}

/// Returns the path for a server that decodes `%u002F` too, such as IIS.
fn without_unicode_escapes(path: &str) -> Option<String> {
    let escape = |rest: &str| {
        let digits = rest.strip_prefix(['u', 'U'])?.get(..4)?;
        let digits =
            Some(digits).filter(|digits| digits.bytes().all(|one| one.is_ascii_hexdigit()));
        char::from_u32(u32::from_str_radix(digits?, 16).ok()?)
    };
    let (mut parts, mut is_changed) = (path.split("%25"), false);
    let mut result = parts.next()?.to_owned();
    for part in parts {
        match escape(part) {
            Some(letter) => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    result.push_str(&format!("%{byte:02X}"));
                }
                result.push_str(&part[5..]);
                is_changed = true;
            }
            None => {
                result.push_str("%25");
                result.push_str(part);
            }
        }
    }
    is_changed.then(|| spelled(&result))
}

/// Returns the path for a server that decodes it, and then splits off the query.
fn without_query(path: &str) -> Option<String> {
    let end = ["%3F", "%23"].iter().filter_map(|mark| path.find(mark)).min()?;
    Some(path[..end].to_owned())
}

/// Returns the path for a server that decodes it, and then reads it as an address. Such a server
/// removes line breaks and tabs, and also blanks and control characters at the end.
fn without_blanks(path: &str) -> Option<String> {
    if !path.contains("%0") && last_blank(path).is_none() {
        return None;
    }
    let mut result = path.replace("%09", "").replace("%0A", "").replace("%0D", "");
    trim_blanks(&mut result);
    (result != path).then_some(result)
}

fn trim_blanks(path: &mut String) {
    while let Some(place) = last_blank(path) {
        path.truncate(place);
    }
}

/// Returns the place of a blank or a control character at the end.
fn last_blank(path: &str) -> Option<usize> {
    let place = path.len().checked_sub(3)?;
    let digits = path.get(place..)?.strip_prefix('%')?;
    (digits == "20" || digits.starts_with(['0', '1'])).then_some(place)
}

/// Turns `/a;x=1/b` into `/a/b`.
pub(super) fn without_parameters(path: &str) -> Option<String> {
    path.contains(';').then(|| {
        let name = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
        path.split('/').map(name).collect::<Vec<_>>().join("/")
    })
}

/// Turns `/a;x=1/..;y/b;z` into `/a;x=1/../b;z`: a server may use parameters, but not those of
/// dots.
fn without_parameters_of_dots(path: &str) -> Option<String> {
    let name = |segment| match str::split_once(segment, ';') {
        Some((name @ ("" | "." | ".."), _)) => name,
        _ => segment,
    };
    let has_some = path.contains(';') && path.split('/').any(|segment| name(segment) != segment);
    has_some.then(|| path.split('/').map(name).collect::<Vec<_>>().join("/"))
}

/// Turns `/a//b` into `/a/b`.
fn without_empty_segments(path: &str) -> Option<String> {
    path.contains("//").then(|| {
        let mut result = String::with_capacity(path.len());
        for part in path.split_inclusive('/').filter(|part| *part != "/") {
            result.push_str(part);
        }
        result.insert(0, '/');
        result
    })
}

/// Turns `//host/a` into `/a`, for servers that read a path as an address, like Node's `new URL`
/// and Python's `urlsplit`.
fn without_host(path: &str) -> Option<String> {
    let host = path.strip_prefix("//")?.trim_start_matches('/');
    Some(host.find('/').map_or("/", |end| &host[end..]).to_owned())
}

/// Turns `/a/./b/../c` into `/a/c`, by RFC 3986: `..` also removes an empty segment.
fn without_dots(path: &str) -> Option<String> {
    let is_dots = |segment: &str| segment == "." || segment == "..";
    if !path.contains("/.") || !path.split('/').any(is_dots) {
        return None;
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let mut result = String::with_capacity(path.len());
    segments.iter().for_each(|segment| result.extend(["/", segment]));
    if path.rsplit('/').next().is_some_and(is_dots) || result.is_empty() {
        result.push('/');
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for (path, form) in [
            ("/%61pi/x", "/api/x"),
            ("/api//x", "/api/x"),
            ("//api/x", "/api/x"),
            ("/a/../api/./x", "/api/x"),
            ("/%2e%2E/api/x", "/api/x"),
            ("/api/x/..", "/api"),
            ("/api/x/", "/api/x"),
            ("/..", "/"),
            ("/a%2fb", "/a/b"),
            ("/a%5Cb\\c", "/a/b/c"),
            ("/x%2f..%2Fapi", "/api"),
            ("/api;a=b/x;c", "/api/x"),
            ("/;a/api/x/..;/x", "/api/x"),
            ("/api%3Ba/x", "/api/x"),
            ("/api%3fa/x", "/api"),
            ("/a%c3%a4", "/a%C3%A4"),
            ("/a\u{e4}", "/a%C3%A4"),
            ("/a%3Ab", "/a:b"),
            ("/a%252Fb", "/a/b"),
            ("/100%/x//", "/100%25/x"),
            ("/{a}", "/%7Ba%7D"),
            ("/a%00%20b%FF", "/a%00%20b%FF"),
            ("/a%0a%20%00", "/a"),
            ("/a%20;x", "/a"),
            ("/x%20/", "/x"),
            ("/x%20%20/", "/x"),
            ("/%u0061pi%u002fx", "/api/x"),
            ("/%U0061/%u00e4/%u12", "/a/%C3%A4/%25u12"),
            ("/a%20%01;x;y", "/a"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%+1", "/%25+1"),
        ] {
            assert_eq!(canonical(path, true), form, "{path}");
            assert_eq!(canonical(form, true), form, "{form}");
        }
        for path in ["/", "/api/x", "/a:b@c,d=e", "*", ""] {
            assert_eq!(canonical(path, true), path);
            assert_eq!(readings(path), [path]);
        }
        assert_eq!(readings("/api/"), ["/api/"]);
    }

    fn readings(path: &str) -> Vec<String> {
        Readings::of(path).each().expect("few readings").map(str::to_owned).collect()
    }

    #[test]
    fn a_path_is_read_as_each_server_reads_it() {
        for (path, read) in [
            ("/a/b%2fc", &["/a/b%2Fc", "/a/b/c"][..]),
            ("/a//../b", &["/a//../b", "/a/../b", "/a/b", "/b"]),
            ("/.hidden", &["/.hidden"]),
            ("/a%20b", &["/a%20b"]),
            ("/a%2F../b", &["/a%2F../b", "/a/../b", "/b"]),
            ("/x/..;/a", &["/x/..;/a", "/x/../a", "/a"]),
            ("/;x/a", &["/;x/a", "//a", "/a", "/"]),
            ("//x:1/a", &["//x:1/a", "/x:1/a", "/a"]),
            ("///x//a", &["///x//a", "/x/a", "//a", "/a", "/"]),
            ("/x/..;/a;b", &["/x/..;/a;b", "/x/../a;b", "/x/../a", "/a;b", "/a"]),
            ("/a;v=1", &["/a;v=1", "/a"]),
            ("/a%252Fb", &["/a%252Fb", "/a%2Fb", "/a/b"]),
            ("/a%3Fb", &["/a%3Fb", "/a"]),
            ("/%u0061/b", &["/%25u0061/b", "/a/b"]),
            ("/a%u002fb", &["/a%25u002fb", "/a%2Fb", "/a/b"]),
            ("/a%0ab%20c%20%00", &["/a%0Ab%20c%20%00", "/ab%20c"]),
            // A server that removes dots before it decodes.
            ("/api/%2e/../x", &["/api/%2E/../x", "/api/./../x", "/api/x", "/x"]),
        ] {
            let mut found = readings(path);
            assert_eq!(found[0], read[0]);
            found.sort_unstable();
            let mut read = read.to_vec();
            read.sort_unstable();
            assert_eq!(found, read, "{path}");
        }
    }

    /// A caller cannot make the work large.
    #[test]
    fn readings_are_few_whatever_the_path() {
        for odd in ["/%2F", "/a%2f/..\\%5c/.%2e//.", "/%5c%2E%2e/a;/%2e/../%2f", "/%252f;%253b%3f"]
        {
            for times in [1, 10, 100, 1_000, 10_000] {
                let path = format!("/{}", odd.repeat(times));
                let count = Readings::of(&path).each().map(Iterator::count);
                assert!(count.is_none_or(|count| count <= MAX_READINGS), "{path}");
                assert!(times < 10_000 || count.is_none());
            }
        }
        assert_eq!(readings(&"/%20x".repeat(9_000)).len(), 1);
        // Each part is looked at once.
        assert_eq!(canonical(&"/x%20".repeat(9_000), true).len(), 9_000 * 5 - 3);
        assert_eq!(canonical(&format!("/x{}", "%20/".repeat(16_000)), true), "/x");
    }
}

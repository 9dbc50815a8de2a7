//! The one reading of a path, or the reason why servers read it in several ways.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use tower_sluice::{Error, ErrorKind};

/// The parts of a path that servers read in several ways, as [`Rows::allow_in_paths`] writes them.
///
/// [`Rows::allow_in_paths`]: super::Rows::allow_in_paths
const AMBIGUOUS: [&str; 11] =
    ["//", "..", "%2F", "%5C", ";", "%3F", "%23", "%25", "%20", "%00", "%FF"];

/// The parts of [`AMBIGUOUS`] that the rows of a table allow.
#[derive(Debug, Default)]
pub(crate) struct Allowed(Vec<&'static str>);

/// The reading of a path, or the part that has several.
pub(crate) type Reading<'a> = Result<Cow<'a, str>, &'static str>;

impl Allowed {
    /// Finds the parts that a table allows. `Err`: one is unknown, with the reason.
    pub(crate) fn new(written: &[String]) -> Result<Self, Vec<(&str, String)>> {
        let known = |text: &&str, part: &str| text.eq_ignore_ascii_case(part);
        let (mut allowed, mut unknown) = (Vec::new(), Vec::new());
        for text in written.iter().map(String::as_str) {
            match AMBIGUOUS.into_iter().find(|part| known(&text, part)) {
                Some(part) => allowed.push(part),
                None => unknown.push((text, format!("there are `{}`", AMBIGUOUS.join("`, `")))),
            }
        }
        if unknown.is_empty() { Ok(Self(allowed)) } else { Err(unknown) }
    }

    /// Reads a path as every server does: each byte in one spelling, without a slash at the end.
    /// An allowed part stays in the path as it is. `Err`: another part that servers read in several
    /// ways.
    pub(crate) fn read<'a>(&self, path: &'a str) -> Reading<'a> {
        let shorter = path.strip_suffix('/').filter(|shorter| !shorter.is_empty());
        let shorter = shorter.unwrap_or(path);
        if !path.starts_with('/') {
            // Such as that of `OPTIONS *`. HTTP/2 may carry others: a server may put a slash first.
            return if matches!(path, "" | "*") { Ok(path.into()) } else { Err("//") };
        }
        if is_plainly_spelled(path) {
            return Ok(shorter.into());
        }
        let (spelled, decoded) = spell(shorter);
        let text = String::from_utf8_lossy(&decoded);
        let has = |part: &str| match part {
            "//" => path.contains("//"),
            // Also encoded dots.
            ".." => spelled.split('/').any(|segment| [".", ".."].contains(&segment)),
            // Servers may decode twice, and IIS also decodes `%u0061`.
            "%25" => text.split('%').skip(1).any(|rest| {
                rest.starts_with(['u', 'U']) || decoded_byte(rest.as_bytes()).is_some()
            }),
            // Some parsers of addresses trim these at the end: Node's `url.parse`.
            "%20" => text.ends_with(|last: char| last.is_whitespace() || last == '\u{feff}'),
            "%00" => text.contains(char::is_control),
            "%FF" => matches!(text, Cow::Owned(_)),
            part => spelled.contains(part),
        };
        let mut others = AMBIGUOUS.iter().filter(|part| !self.0.contains(part));
        match others.find(|part| has(part)) {
            Some(part) => Err(part),
            None => Ok(spelled.into()),
        }
    }
}

/// Says that a path, or a pattern of paths, has a part that servers read in several ways.
pub(crate) fn in_several_ways(part: &str) -> String {
    format!("servers read `{part}` in a path in several ways")
}

/// The error of a request whose path has a part that servers read in several ways.
pub(crate) fn ambiguous_path(part: &str) -> Error {
    Error::new(ErrorKind::Request, in_several_ways(part)).with_source(Ambiguous(MAY_ALLOW))
}

/// The remedy, for the operator.
pub(crate) const MAY_ALLOW: &str = "a table may `allow_in_paths`";

/// The cause of the refusal of a request that programs may read in several ways. Its text is for
/// the operator.
#[derive(Debug)]
pub(crate) struct Ambiguous(pub(crate) &'static str);

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Ambiguous {}

/// Returns true for the bytes that a path may have unencoded.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"%?#{}\\".contains(&byte)
}

/// Returns true if a path is spelled like its reading, apart from a slash at the end.
fn is_plainly_spelled(path: &str) -> bool {
    let mut before = 0;
    !path.bytes().any(|byte| {
        let is_odd = !is_plain(byte) || byte == b';' || before == b'/' && b"/.".contains(&byte);
        before = byte;
        is_odd
    })
}

/// Returns the path with each byte in one spelling: unencoded, or percent-encoded in upper case.
pub(crate) fn spelled(path: &str) -> String {
    spell(path).0
}

/// Returns the path with each byte in one spelling, and decoded.
fn spell(path: &str) -> (String, Vec<u8>) {
    let (mut spelled, mut text) = (String::with_capacity(path.len()), Vec::new());
    let mut bytes = path.as_bytes();
    while let [first, rest @ ..] = bytes {
        let escaped = if *first == b'%' { decoded_byte(rest) } else { None };
        bytes = if escaped.is_some() { &rest[2..] } else { rest };
        let byte = escaped.unwrap_or(*first);
        match is_plain(byte) && (byte != b'/' || escaped.is_none()) {
            true => spelled.push(byte.into()),
            false => write!(spelled, "%{byte:02X}").expect("a string takes all"),
        }
        text.push(byte);
    }
    (spelled, text)
}

/// Decodes the two hexadecimal digits at the beginning of a text.
pub(crate) fn decoded_byte(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(path: &'a str, allowed: &[&str]) -> Reading<'a> {
        let allowed: Vec<_> = allowed.iter().map(|part| (*part).to_owned()).collect();
        Allowed::new(&allowed).expect("parts of paths").read(path)
    }

    #[test]
    fn what_applications_send_has_one_reading() {
        for (path, reading) in [
            ("/", "/"),
            ("*", "*"),
            ("", ""),
            ("/api/x", "/api/x"),
            ("/api/x/", "/api/x"),
            ("/%61pi/x", "/api/x"),
            ("/a%20b/c", "/a%20b/c"),
            ("/a%20/b", "/a%20/b"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/caf\u{e9}/", "/caf%C3%A9"),
            ("/v1/messages%3asend", "/v1/messages:send"),
            ("/a:b@c,d=e", "/a:b@c,d=e"),
            ("/{a}", "/%7Ba%7D"),
            ("/.well-known/..x/...", "/.well-known/..x/..."),
            ("/100%/x", "/100%25/x"),
            ("/100%25/x", "/100%25/x"),
            ("/50%25off", "/50%25off"),
            ("/%4", "/%254"),
            ("/%+1", "/%25+1"),
        ] {
            assert_eq!(read(path, &[]).as_deref(), Ok(reading), "{path}");
            assert_eq!(read(reading, &[]).as_deref(), Ok(reading), "{path}");
        }
    }

    #[test]
    fn a_part_that_servers_read_in_several_ways_has_no_reading_unless_it_is_allowed() {
        for (path, part, reading) in [
            ("//a", "//", "//a"),
            ("/a//b/", "//", "/a//b"),
            ("/a//", "//", "/a/"),
            ("//", "//", "/"),
            ("/a/..", "..", "/a/.."),
            ("/a/./b", "..", "/a/./b"),
            ("/%2e%2E/a", "..", "/../a"),
            ("/a%2fb", "%2F", "/a%2Fb"),
            ("/a\\b", "%5C", "/a%5Cb"),
            ("/a%5cb", "%5C", "/a%5Cb"),
            ("/a;b=1", ";", "/a;b=1"),
            ("/a%3bb=1", ";", "/a;b=1"),
            ("/c%23", "%23", "/c%23"),
            ("/what%3f", "%3F", "/what%3F"),
            ("/%2561", "%25", "/%2561"),
            ("/%25%36%31", "%25", "/%2561"),
            ("/%2%35", "%25", "/%2525"),
            ("/%u0061", "%25", "/%25u0061"),
            ("/%25U0061", "%25", "/%25U0061"),
            ("/a%20", "%20", "/a%20"),
            ("/a%C2%A0", "%20", "/a%C2%A0"),
            ("/a%EF%BB%BF", "%20", "/a%EF%BB%BF"),
            ("/a%09b", "%00", "/a%09b"),
            ("/a%00", "%00", "/a%00"),
            ("/a%7Fb", "%00", "/a%7Fb"),
            ("/a%FFb", "%FF", "/a%FFb"),
            ("/%c0%af", "%FF", "/%C0%AF"),
        ] {
            assert_eq!(read(path, &[]), Err(part), "{path}");
            assert_eq!(read(path, &[part]).as_deref(), Ok(reading), "{path}");
        }
        assert_eq!(read("/a;b/..", &[";"]), Err(".."));
        assert_eq!(read("/a%2fb", &["%2f"]).as_deref(), Ok("/a%2Fb"));
        assert!(Allowed::new(&["%41".to_owned()]).is_err());
    }
}

//! Values that requests have beside their headers: cookies, and parameters of the query.

use http::header::COOKIE;
use tower_sluice::key::Head;
use tower_sluice::{Error, ErrorKind};

use super::path::{Ambiguous, decoded_byte};

/// Returns the values of the cookies of this name, without blanks and quotes around them. Escapes
/// are decoded, as many servers do: otherwise one session would have many spellings.
pub(crate) fn cookies<'a>(head: &Head<'a>, name: &str) -> impl Iterator<Item = String> {
    let lines = head.headers().get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let (own, value) = String::from_utf8_lossy(pair).split_once('=').map(|(own, value)| {
            let value = value.trim_ascii();
            let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let plain = |text: &str| decoded(text.trim_ascii(), b'+');
            (plain(own), plain(inside.unwrap_or(value)))
        })?;
        (own == name).then_some(value)
    })
}

/// Returns the values of the parameters of this name in the query, decoded.
pub(crate) fn parameters<'a>(head: &Head<'a>, name: &str) -> impl Iterator<Item = String> {
    let pairs = head.uri().query().unwrap_or_default().split('&');
    pairs.filter_map(move |pair| {
        let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
        // In a form, a `+` is a space.
        (!own.is_empty() && decoded(own, b' ') == name).then(|| decoded(value, b' '))
    })
}

/// Decodes the escapes of a text, with `plus` for each `+`.
fn decoded(text: &str, plus: u8) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let escaped = if *first == b'%' { decoded_byte(after) } else { None };
        bytes.push(escaped.unwrap_or(if *first == b'+' { plus } else { *first }));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the only value.
///
/// # Errors
///
/// If there is none, or if it is empty. Also if there are several, of which another program may
/// read another one.
pub(crate) fn only(
    mut values: impl Iterator<Item = String>,
    kind: &str,
    name: &str,
) -> Result<String, Error> {
    let first = values.next().filter(|value| !value.is_empty());
    let wrong = |why| Error::new(ErrorKind::Request, format!("request has {why} {kind} `{name}`"));
    match (first, values.next()) {
        (Some(value), None) => Ok(value),
        (None, None) => Err(wrong("no")),
        (_, Some(_)) => {
            let why = Ambiguous("other programs may read another one of them");
            Err(wrong("more than one").with_source(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_cookie_is_found_in_any_line_and_has_no_quotes() {
        let request = Request::builder()
            .header(COOKIE, "a=1; session = \"x=y\" ;b")
            .header(COOKIE, "theme=dark;a=2")
            .body(())
            .unwrap();
        let all = |name| cookies(&Head::from(&request), name).collect::<Vec<_>>();
        assert_eq!(all("session"), ["x=y"]);
        assert_eq!(all("theme"), ["dark"]);
        assert_eq!(all("a"), ["1", "2"]);
        assert!(all("b").is_empty() && all("Session").is_empty());
        let spelled = [("session=a+b%2Bc", "a+b+c"), ("%73ession=\" a%2 \"", "a%2")];
        for (line, expected) in spelled {
            let request = Request::builder().header(COOKIE, line).body(()).unwrap();
            assert_eq!(cookies(&Head::from(&request), "session").collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn a_parameter_is_decoded_as_forms_are() {
        let request =
            Request::builder().uri("/?us%65r=a%20b+c%2&x=&user=%E4&=z&y").body(()).unwrap();
        let all = |name| parameters(&Head::from(&request), name).collect::<Vec<_>>();
        assert_eq!(all("user"), ["a b c%2", "\u{fffd}"]);
        assert_eq!((all("x"), all("y")), (vec![String::new()], vec![String::new()]));
        assert!(all("").is_empty());
    }
}

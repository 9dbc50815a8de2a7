//! The path that a request means, however it spells it.

/// The canonical form of a path: unreserved characters are not percent-encoded, other escapes are
/// in upper case, and no segment is empty, `.` or `..`. `None` if the path is in that form.
pub(super) fn canonical(path: &str) -> Option<String> {
    let may_differ = path.contains('%') || path.contains("//") || path.contains("/.");
    if !may_differ {
        return None;
    }
    let decoded = unescaped(path);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let mut result = String::with_capacity(decoded.len());
    for segment in &segments {
        result.extend(["/", segment]);
    }
    let ends_open = ["/", "/.", "/.."].iter().any(|end| decoded.ends_with(end));
    if result.is_empty() || ends_open {
        result.push('/');
    }
    Some(result).filter(|result| result != path)
}

/// The text without escapes that need not be.
fn unescaped(path: &str) -> String {
    let mut result = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        result.push_str(before);
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()));
        let Some(digits) = digits else {
            result.push('%');
            rest = after;
            continue;
        };
        rest = &after[2..];
        match u8::from_str_radix(digits, 16).map(char::from) {
            Ok(byte) if byte.is_ascii_alphanumeric() || "-._~".contains(byte) => result.push(byte),
            _ => result.extend(["%", &digits.to_ascii_uppercase()]),
        }
    }
    result.push_str(rest);
    result
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
            ("/api/x/..", "/api/"),
            ("/..", "/"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%c3%a4", "/a%C3%A4"),
            ("/100%/x//", "/100%/x/"),
        ] {
            assert_eq!(canonical(path).as_deref(), Some(form), "{path}");
        }
        for path in ["/", "/api/x", "/api/", "/a%2Fb", "*", ""] {
            assert_eq!(canonical(path), None, "{path}");
        }
    }
}

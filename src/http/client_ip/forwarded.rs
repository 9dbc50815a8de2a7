//! Elements of `Forwarded`, by RFC 7239: pairs with semicolons between them, whose values may be
//! quoted.

use std::borrow::Cow;

/// Returns the place of the last comma outside of quotation marks.
///
/// The search runs from the right. The first quotation mark ends a quoted text. The next one to its
/// left begins the text, unless an odd number of backslashes precedes it.
pub(super) fn last_comma(text: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    for (place, byte) in text.iter().enumerate().rev() {
        match byte {
            b'"' if !is_quoted => is_quoted = true,
            b'"' => is_quoted = is_escaped(&text[..place]),
            b',' if !is_quoted => return Some(place),
            _ => {}
        }
    }
    None
}

/// Returns true if the byte after `before` is escaped, inside of quotation marks.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Returns the value of the only parameter `for` of an element, without quotation marks.
///
/// The other parameters may have any value within the element: an invalid `proto` does not change
/// the sender of the request.
pub(super) fn parameter_for(element: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !element.is_ascii() {
        return None;
    }
    let mut found = None;
    let mut rest = Some(element);
    while let Some(text) = rest {
        let pair;
        (pair, rest) = split_pair(text)?;
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
        if pair[..equals].eq_ignore_ascii_case(b"for")
            && found.replace(value(&pair[equals + 1..])?).is_some()
        {
            return None;
        }
    }
    found
}

/// Splits off the first pair. Returns it, and the text after its semicolon.
///
/// Returns `None` if a quotation mark is not closed, or if a comma or a backslash is outside of
/// quotation marks. Then a reader from the left would find other elements than [`last_comma`].
fn split_pair(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => is_escaped = true,
            b'\\' | b',' if !is_quoted => return None,
            b';' if !is_quoted => {
                return Some((text[..place].trim_ascii(), Some(&text[place + 1..])));
            }
            _ => {}
        }
    }
    (!is_quoted).then(|| (text.trim_ascii(), None))
}

/// Reads a value: a text without quotation marks, or a quoted text with escapes.
fn value(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(inside) = text.strip_prefix(b"\"") else {
        return (!text.contains(&b'"')).then_some(Cow::Borrowed(text));
    };
    let inside = inside.strip_suffix(b"\"")?;
    if !inside.contains(&b'\\') {
        return (!inside.contains(&b'"')).then_some(Cow::Borrowed(inside));
    }
    let mut value = Vec::new();
    let mut bytes = inside.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => value.push(*bytes.next()?),
            _ => value.push(*byte),
        }
    }
    Some(Cow::Owned(value))
}

#[cfg(test)]
mod tests;

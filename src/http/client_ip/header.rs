//! The elements of a forwarded header, the last element first.
//!
//! Only the elements that trusted proxies appended count, and they are on the right. So the text is
//! split from the right, and no byte on the left changes how an element on the right is read.

use std::borrow::Cow;
use std::iter;
use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use super::{forwarded, forwarded_address};

const MAX_ELEMENTS: usize = 64;

const MAX_BYTES: usize = 8 * 1024;

/// The header that proxies append to.
#[derive(Clone, Debug)]
pub(super) struct ForwardedHeader {
    name: HeaderName,
    /// True for a list of addresses, false for `Forwarded`.
    is_list: bool,
}

impl ForwardedHeader {
    pub(super) const X_FORWARDED_FOR: Self =
        Self { name: HeaderName::from_static("x-forwarded-for"), is_list: true };

    pub(super) fn new(name: HeaderName) -> Self {
        Self { is_list: name != FORWARDED, name }
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &HeaderName {
        &self.name
    }

    /// Returns the text of all lines, or of the last lines if they are too long.
    pub(super) fn text<'a>(&self, headers: &'a HeaderMap) -> Cow<'a, [u8]> {
        let mut all = headers.get_all(&self.name).iter();
        let Some(last) = all.next_back() else { return Cow::Borrowed(&[]) };
        let mut lines = vec![];
        let mut length = last.len();
        while length <= MAX_BYTES
            && let Some(line) = all.next_back()
        {
            lines.push(line.as_bytes());
            length += line.len() + 1;
        }
        if lines.is_empty() {
            return Cow::Borrowed(last.as_bytes());
        }
        lines.reverse();
        lines.push(last.as_bytes());
        Cow::Owned(lines.join(&b','))
    }

    /// Returns the elements of such a text, the last element first, up to the bounds.
    pub(super) fn elements<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let start = text.len().saturating_sub(MAX_BYTES);
        let is_first_cut = start > 0 && text[start - 1] != b',';
        let is_comma = |byte: &u8| *byte == b',';
        let mut left = Some(&text[start..]);
        let each = iter::from_fn(move || {
            let rest = left?;
            let comma = match self.is_list {
                true => rest.iter().rposition(is_comma),
                false => forwarded::last_comma(rest),
            };
            left = comma.map(|comma| &rest[..comma]);
            if comma.is_none() && is_first_cut {
                return None;
            }
            Some(rest[comma.map_or(0, |comma| comma + 1)..].trim_ascii())
        });
        each.filter(|element| !element.is_empty()).take(MAX_ELEMENTS)
    }

    /// Returns the address in an element.
    pub(super) fn address(&self, element: &[u8]) -> Option<IpAddr> {
        match self.is_list {
            true => forwarded_address::parse(element),
            false => forwarded_address::parse(&forwarded::parameter_for(element)?),
        }
    }
}

//! The text of a field that is written anew for each response. It is on the stack until it becomes
//! a value.

use http::HeaderValue;

/// A short text, in which numbers are decimal digits.
pub(super) struct Line {
    bytes: [u8; Line::MAX],
    length: usize,
}

impl Line {
    /// Enough for a policy's name and three numbers.
    const MAX: usize = 160;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; Self::MAX], length: 0 }
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.push(text.as_bytes());
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        let (digits, start) = digits(number);
        self.push(&digits[start..]);
        self
    }

    /// The value. `None` if the text is too long, or invalid in a field.
    pub(super) fn value(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.bytes.get(..self.length)?).ok()
    }

    fn push(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(text);
        }
        self.length = end;
    }
}

/// A field that is a number.
pub(super) fn number(number: u64) -> Option<HeaderValue> {
    let (digits, start) = digits(number);
    HeaderValue::from_bytes(&digits[start..]).ok()
}

/// The decimal digits of a number, and the place of the first one.
fn digits(mut number: u64) -> ([u8; 20], usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len() - 1;
    while number > 9 {
        digits[start] += (number % 10) as u8;
        number /= 10;
        start -= 1;
    }
    digits[start] += number as u8;
    (digits, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_displayed() {
        for shift in 0..64 {
            for near in [(1 << shift) - 1, 1 << shift, u64::MAX >> shift, 10_u64.pow(shift % 20)] {
                assert_eq!(number(near).unwrap(), near.to_string());
                assert_eq!(Line::new().number(near).value().unwrap(), near.to_string());
            }
        }
    }

    #[test]
    fn what_is_too_long_is_no_value() {
        let line = |length| Line::new().text(&"x".repeat(length)).number(7).value();
        assert_eq!(line(Line::MAX - 1).unwrap(), "x".repeat(Line::MAX - 1) + "7");
        assert_eq!(line(Line::MAX), None);
        assert_eq!(line(2 * Line::MAX), None);
    }
}

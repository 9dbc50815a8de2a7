//! The framing of a caller's requests, which is read beside hyper.
//!
//! Where a length stands beside a transfer coding, hyper removes the length before anybody sees it.
//! So each head is searched as its bytes come. A head may come in one packet with the body before
//! it, or while the request before it runs: the bodies are counted, so that each head is found.
//!
//! It reads as hyper does, and where hyper takes less, that ends the connection.

/// Counts the heads of a connection, up to the first one with two framings.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    heads: u64,
    part: MessagePart,
    line: LineState,
    /// The length that the head states.
    length: Option<u64>,
    /// The head states a transfer coding.
    is_coded: bool,
}

/// The part of a message that comes.
#[derive(Clone, Copy, Debug, Default)]
enum MessagePart {
    /// Empty lines, or the first byte of a head.
    #[default]
    Before,
    Head,
    /// So many bytes of a body, or of a chunk and the end of its line.
    Bytes(u64),
    /// The line that begins a chunk, with the size so far.
    Size(u64),
    /// A bare line feed ends none of their lines.
    Trailers {
        has_return: bool,
    },
    /// Nothing is read any more: a head with two framings has come, or another protocol.
    Over,
}

/// The present line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineState {
    #[default]
    Empty,
    /// So many letters of this name.
    Name(&'static [u8], usize),
    /// The value of `Content-Length`.
    Length,
    Other,
}

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
/// The begin of HTTP/2, whose requests have no such framing.
const PREFACE: &[u8] = b"pri * http/2.0";

impl Framing {
    /// Reads on. Returns the number of heads that have ended and that have one framing.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> u64 {
        let mut rest = bytes;
        while let [byte, after @ ..] = rest {
            rest = after;
            match (self.part, *byte) {
                (MessagePart::Over, _) => break,
                (MessagePart::Bytes(left), _) => {
                    // One of them is read.
                    let left = left - 1;
                    let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(after.len());
                    rest = &after[skipped..];
                    self.part = match left - skipped as u64 {
                        0 if self.is_coded => MessagePart::Size(0),
                        0 => MessagePart::Before,
                        left => MessagePart::Bytes(left),
                    };
                }
                (MessagePart::Trailers { .. }, b'\r') => {
                    self.part = MessagePart::Trailers { has_return: true }
                }
                (MessagePart::Trailers { has_return }, byte) => {
                    self.part = MessagePart::Trailers { has_return: false };
                    match has_return && byte == b'\n' {
                        true => self.end_line(),
                        false => self.line = LineState::Other,
                    }
                }
                (_, b'\n') => self.end_line(),
                (_, b'\r') => {}
                _ if self.line == LineState::Other => {
                    // To the end of the line at once.
                    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                    rest = &rest[end..];
                }
                (MessagePart::Size(size), byte) => match char::from(byte).to_digit(16) {
                    Some(digit) => {
                        let size = size.saturating_mul(16).saturating_add(digit.into());
                        self.part = MessagePart::Size(size);
                    }
                    None => self.line = LineState::Other,
                },
                (MessagePart::Before, byte) => {
                    (self.part, self.length, self.is_coded) = (MessagePart::Head, None, false);
                    self.read_in_head(byte);
                }
                (MessagePart::Head, byte) => self.read_in_head(byte),
            }
        }
        self.heads
    }

    fn read_in_head(&mut self, byte: u8) {
        let letter = byte.to_ascii_lowercase();
        self.line = match self.line {
            LineState::Empty => {
                let mut names = [LENGTH, CODING, PREFACE].into_iter();
                let name = names.find(|name| name[0] == letter);
                name.map_or(LineState::Other, |name| LineState::Name(name, 1))
            }
            LineState::Name(name, matched) if name[matched] != letter => LineState::Other,
            LineState::Name(name, matched) if matched + 1 < name.len() => {
                LineState::Name(name, matched + 1)
            }
            LineState::Name(LENGTH, _) => {
                self.length = Some(0);
                LineState::Length
            }
            LineState::Name(CODING, _) => {
                self.is_coded = true;
                LineState::Other
            }
            LineState::Name(..) => {
                self.part = MessagePart::Over;
                LineState::Other
            }
            LineState::Length => {
                if let (Some(length), Some(digit)) =
                    (&mut self.length, char::from(byte).to_digit(10))
                {
                    *length = length.saturating_mul(10).saturating_add(digit.into());
                }
                LineState::Length
            }
            LineState::Other => LineState::Other,
        };
    }

    fn end_line(&mut self) {
        let is_empty = std::mem::take(&mut self.line) == LineState::Empty;
        self.part = match self.part {
            MessagePart::Head if is_empty => self.end_head(),
            MessagePart::Size(0) => MessagePart::Trailers { has_return: false },
            MessagePart::Size(size) => MessagePart::Bytes(size.saturating_add(2)),
            MessagePart::Trailers { .. } if is_empty => MessagePart::Before,
            part => part,
        };
    }

    /// Returns what comes after the head.
    fn end_head(&mut self) -> MessagePart {
        if self.is_coded && self.length.is_some() {
            return MessagePart::Over;
        }
        self.heads += 1;
        match self.length {
            _ if self.is_coded => MessagePart::Size(0),
            None | Some(0) => MessagePart::Before,
            Some(length) => MessagePart::Bytes(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of heads, whether the bytes come at once, one by one, or in two parts.
    fn heads(text: &str) -> u64 {
        let bytes = text.as_bytes();
        let whole = Framing::default().read(bytes);
        let mut framing = Framing::default();
        let one_by_one = bytes.iter().map(|byte| framing.read(&[*byte])).last();
        assert_eq!(one_by_one.unwrap_or(0), whole, "{text:?}");
        for cut in 0..bytes.len() {
            let mut framing = Framing::default();
            framing.read(&bytes[..cut]);
            assert_eq!(framing.read(&bytes[cut..]), whole, "{text:?} at {cut}");
        }
        whole
    }

    const BOTH: &str = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nContent-LENGTH: 3\r\n\r\n";

    #[test]
    fn each_head_is_counted_until_one_has_two_framings() {
        for (expected, before) in [
            (0, ""),
            (0, "\r\n\n\r\n"),
            (1, "GET / HTTP/1.1\r\nhost: a\r\nx-content-length: 3\r\n\r\n"),
            (1, "GET /content-length: HTTP/1.1\n\n"),
            (2, "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n\r\n"),
            (1, "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
            (1, "POST / HTTP/1.1\r\ncontent-length:\t18 \r\n\r\nGET / HTTP/1.1\r\n\r\n"),
            (1, "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx"),
            (1, "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
            (
                1,
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                 1B ;x=5\r\nGET / HTTP/1.1\r\nx: 1234\r\n\r\n\r\n3\r\n\r\n\r\r\n0\r\n\r\n",
            ),
            (
                1,
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
                 0\r\nx: 1\n\nGET / HTTP/1.1\r\ncontent-length: 9\r\n\r\n",
            ),
        ] {
            assert_eq!(heads(before), expected, "{before:?}");
            assert_eq!(heads(&format!("{before}{BOTH}")), expected, "{before:?}");
            let after = format!("{before}{BOTH}3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
            assert_eq!(heads(&after), expected, "{before:?}");
            let other = format!("{before}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(heads(&other), expected + 1, "{before:?}");
        }
    }

    #[test]
    fn nothing_is_read_of_http_2() {
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        assert_eq!(heads(preface), 0);
    }
}

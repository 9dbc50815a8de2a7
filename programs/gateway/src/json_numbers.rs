//! Reads the numbers at JSON pointers out of a body that streams by: a document, or the events of a
//! stream, each of which has one. It keeps no part of the body, so its memory does not grow.

use std::mem;

/// The numbers at some JSON pointers.
#[derive(Debug)]
pub(crate) struct JsonNumbers {
    pointers: Vec<Vec<String>>,
    /// The last number at each pointer in a document that has ended.
    found: Vec<Option<u64>>,
    /// The numbers of the document that is read.
    open: Vec<Option<u64>>,
    /// The steps to the value that is read, as far as pointers reach.
    path: Vec<Step>,
    /// The brackets that are open.
    depth: usize,
    /// The most steps of a pointer, and the most bytes of a text that is compared.
    longest: (usize, usize),
    text: Vec<u8>,
    token: Token,
}

#[derive(Debug)]
enum Step {
    Key(Vec<u8>),
    Index(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Token {
    #[default]
    None,
    Text,
    /// After a backslash in a text.
    Escape,
    /// A number, `true`, `false` or `null`.
    Word,
}

/// A number with more digits is none.
const MOST_DIGITS: usize = 20;

impl JsonNumbers {
    pub(crate) fn new<'a>(pointers: impl Iterator<Item = &'a str>) -> Self {
        let unescaped = |step: &str| step.replace("~1", "/").replace("~0", "~");
        let steps = |pointer: &str| pointer.split('/').skip(1).map(unescaped).collect();
        let pointers: Vec<Vec<String>> = pointers.map(steps).collect();
        let steps = pointers.iter().map(Vec::len).max().unwrap_or(0);
        let bytes = pointers.iter().flatten().map(String::len).max().unwrap_or(0);
        let (found, open) = (vec![None; pointers.len()], vec![None; pointers.len()]);
        let longest = (steps, bytes.max(MOST_DIGITS));
        let (path, text) = (Vec::new(), Vec::new());
        Self { pointers, found, open, path, depth: 0, longest, text, token: Token::None }
    }

    /// The last number at each pointer, of all documents that have ended.
    pub(crate) fn found(&self) -> &[Option<u64>] {
        &self.found
    }

    /// Forgets a document that has not ended.
    fn begin(&mut self) {
        (self.depth, self.token) = (0, Token::None);
        self.path.clear();
        self.open.fill(None);
    }

    fn read(&mut self, byte: u8) {
        match (self.token, byte) {
            (Token::Escape, _) => {
                self.token = Token::Text;
                if !matches!(byte, b'"' | b'\\' | b'/') {
                    self.keep(b'\\');
                }
                self.keep(byte);
            }
            (Token::Text, b'\\') => self.token = Token::Escape,
            (Token::Text, b'"') => self.token = Token::None,
            (Token::Text, _) => self.keep(byte),
            (_, b'"' | b'{' | b'[' | b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') => {
                if mem::take(&mut self.token) == Token::Word {
                    self.word();
                }
                self.mark(byte);
            }
            (Token::Word, _) => self.keep(byte),
            (Token::None, _) => {
                self.token = Token::Word;
                self.text.clear();
                self.keep(byte);
            }
        }
    }

    /// Keeps a byte of a text, one more than any that is looked for.
    fn keep(&mut self, byte: u8) {
        if self.text.len() <= self.longest.1 {
            self.text.push(byte);
        }
    }

    fn mark(&mut self, byte: u8) {
        let is_followed = self.depth <= self.longest.0;
        match byte {
            b'"' => {
                self.token = Token::Text;
                self.text.clear();
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth <= self.longest.0 {
                    let first = if byte == b'[' { Step::Index(0) } else { Step::Key(Vec::new()) };
                    self.path.push(first);
                }
            }
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                self.path.truncate(self.depth);
                if self.depth == 0 {
                    let ended = self.found.iter_mut().zip(&mut self.open);
                    ended.for_each(|(found, open)| *found = open.take().or(*found));
                }
            }
            b':' if is_followed => {
                if let Some(Step::Key(key)) = self.path.last_mut() {
                    mem::swap(key, &mut self.text);
                }
            }
            b',' if is_followed => {
                if let Some(Step::Index(index)) = self.path.last_mut() {
                    *index += 1;
                }
            }
            _ => {}
        }
    }

    /// Takes a word that has ended, if it is a value at a pointer.
    fn word(&mut self) {
        let number = str::from_utf8(&self.text).ok().filter(|text| !text.starts_with('+'));
        let number = number.and_then(|text| text.parse().ok());
        for (pointer, open) in self.pointers.iter().zip(&mut self.open) {
            let mut steps = self.path.iter().zip(pointer);
            let is_here = self.depth == pointer.len()
                && steps.all(|(step, name)| match step {
                    Step::Key(key) => key == name.as_bytes(),
                    Step::Index(index) => name.parse() == Ok(*index),
                });
            if is_here {
                *open = number;
            }
        }
    }
}

/// Reads the numbers of a body, by its content type.
#[derive(Debug)]
pub(crate) struct BodyNumbers {
    pub(crate) numbers: JsonNumbers,
    /// `None`: the body is JSON, one document or several.
    event_line: Option<Line>,
}

/// The line of an event stream that is read.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// As many bytes of `data:` were read. After a CR, an LF ends nothing.
    Name {
        read: usize,
        after_cr: bool,
    },
    Data,
    Other,
}

const DATA: &[u8] = b"data:";

impl BodyNumbers {
    /// `None` for a body of another type, or one that is compressed.
    pub(crate) fn of<'a>(
        content_type: &str,
        pointers: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let event_line = match kind.as_str() {
            "text/event-stream" => Some(Line::Name { read: 0, after_cr: false }),
            "application/json" | "application/x-ndjson" | "application/jsonl" => None,
            kind if kind.ends_with("+json") => None,
            _ => return None,
        };
        Some(Self { numbers: JsonNumbers::new(pointers), event_line })
    }

    pub(crate) fn read(&mut self, bytes: &[u8]) {
        let Some(line) = &mut self.event_line else {
            return bytes.iter().for_each(|byte| self.numbers.read(*byte));
        };
        for byte in bytes.iter().copied() {
            *line = match (*line, byte) {
                (Line::Name { read: 0, after_cr: true }, b'\n') => {
                    Line::Name { read: 0, after_cr: false }
                }
                (ended, b'\r' | b'\n') => {
                    match ended {
                        // Several lines of data are one text.
                        Line::Data => self.numbers.read(b'\n'),
                        // An empty line ends the event.
                        Line::Name { read: 0, .. } => self.numbers.begin(),
                        _ => {}
                    }
                    Line::Name { read: 0, after_cr: byte == b'\r' }
                }
                (Line::Name { read, .. }, byte) if byte == DATA[read] => match read + 1 {
                    read if read == DATA.len() => Line::Data,
                    read => Line::Name { read, after_cr: false },
                },
                (Line::Data, byte) => {
                    self.numbers.read(byte);
                    Line::Data
                }
                _ => Line::Other,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body in two parts, cut at each place, and byte by byte.
    fn read(kind: &str, pointers: &[&str], body: &str) -> Vec<Option<u64>> {
        let reader = || BodyNumbers::of(kind, pointers.iter().copied()).expect("a known type");
        let mut bytewise = reader();
        body.bytes().for_each(|byte| bytewise.read(&[byte]));
        for cut in 0..=body.len() {
            let mut two = reader();
            let (one, other) = body.as_bytes().split_at(cut);
            two.read(one);
            two.read(other);
            assert_eq!(two.numbers.found(), bytewise.numbers.found(), "cut at {cut}");
        }
        bytewise.numbers.found().to_vec()
    }

    fn of_json(pointer: &str, body: &str) -> Option<u64> {
        read("application/json; charset=utf-8", &[pointer], body)[0]
    }

    fn of_events(pointers: &[&str], body: &str) -> Vec<Option<u64>> {
        let events = |body: &str| read("Text/Event-Stream;charset=utf-8", pointers, body);
        let found = events(body);
        // Lines end in three ways.
        assert_eq!(events(&body.replace('\n', "\r\n")), found);
        assert_eq!(events(&body.replace('\n', "\r")), found);
        found
    }

    #[test]
    fn a_number_is_found_by_its_pointer_alone() {
        let body = r#"{"id": "\"usage\": {\"total_tokens\": 1}", "x": [{"usage": {"total_tokens": 2}}],
            "usage" : { "details": {"total_tokens": 3, "usage": [[[[{"total_tokens": 4}]]]]},
            "total_tokens" :70 , "total_tokens_": 5, "total_token": 6}, "total_tokens": 7, "y": []}"#;
        assert_eq!(of_json("/usage/total_tokens", body), Some(70));
        assert_eq!(of_json("/x/0/usage/total_tokens", body), Some(2));
        assert_eq!(of_json("/x/1/usage/total_tokens", body), None);
        assert_eq!(of_json("/total_tokens", body), Some(7));
        assert_eq!(of_json("/usage", body), None);
        assert_eq!(of_json("/1/b", "[1, {\"a\": 2, \"b\": 3}, 4]"), Some(3));
        assert_eq!(of_json("/a~1b/~0\"", r#"{"a/b": {"~\"": 5}}"#), Some(5));
        assert_eq!(of_json("/ta", r#"{"\ta": 5}"#), None);
    }

    #[test]
    fn only_a_whole_number_in_a_whole_document_counts() {
        for value in [
            "-5",
            "1.5",
            "5.0",
            "1e3",
            "+5",
            "\"5\"",
            "null",
            "true",
            "{}",
            "[5]",
            "",
            "99999999999999999999",
            "999999999999999999999999999999999999999999999999999999999999",
        ] {
            assert_eq!(of_json("/a", &format!("{{\"a\": {value}}}")), None, "{value}");
        }
        assert_eq!(of_json("/a", "{\"a\": 0}"), Some(0));
        for broken in
            ["{\"a\": 5", "{\"a\": 5, \"b\": {}", "{\"a\": 5, \"b\": \"}", "\"a\": 5}", "}{"]
        {
            assert_eq!(of_json("/a", broken), None, "{broken}");
        }
        // One document a line, as Ollama has it.
        let lines = "{\"a\": 1}\n{\"done\": true}\n{\"a\": 3, \"done\": true}\n";
        assert_eq!(read("application/x-ndjson", &["/a"], lines), [Some(3)]);
        for kind in ["text/plain", "application/vnd.amazon.eventstream", "", "json"] {
            assert!(BodyNumbers::of(kind, ["/a"].into_iter()).is_none(), "{kind}");
        }
    }

    /// OpenAI with `stream_options.include_usage`: all events but the last have `null`.
    #[test]
    fn the_last_event_with_a_number_counts() {
        let begin = ": keep-alive\n\nevent: message\ndata: {\"choices\":[{\"delta\":{\"content\":\"data: {\\\"usage\\\":{\\\"total_tokens\\\":9}}\"}}],\"usage\":null}\n\n";
        let usage = "data:{\"choices\":[],\"usage\":{\"prompt_tokens\":13,\"total_tokens\":501,\"completion_tokens\":488}}\n\ndata: [DONE]\n\n";
        let tokens = &["/usage/total_tokens"];
        assert_eq!(of_events(tokens, &format!("{begin}{begin}{usage}")), [Some(501)]);
        // Without `include_usage`, no event has it.
        assert_eq!(of_events(tokens, &format!("{begin}{begin}data: [DONE]\n\n")), [None]);
        // Others state a running total with each event.
        let later = usage.replace("501", "502");
        assert_eq!(of_events(tokens, &format!("{usage}{begin}{later}")), [Some(502)]);
        // The last event may have no empty line behind it, and an event that breaks off no end.
        let unfinished = "data: {\"usage\":{\"total_tokens\":7\n\n";
        assert_eq!(of_events(tokens, &format!("{unfinished}{}", usage.trim_end())), [Some(501)]);
        assert_eq!(of_events(tokens, &format!("{usage}{unfinished}")), [Some(501)]);
    }

    /// apache/apisix issue 13662: the input is in one event, the output in another.
    #[test]
    fn each_pointer_has_its_own_event() {
        let body = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":472,\"output_tokens\":2}}}\n\n\
                    event: ping\ndata: {\"type\": \"ping\"}\n\n\
                    event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":40}}\n\n\
                    event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":89}}\n\n\
                    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        let pointers = ["/message/usage/input_tokens", "/usage/output_tokens"];
        assert_eq!(of_events(&pointers, body), [Some(472), Some(89)]);
    }

    /// api7/aisix issue 1105: an event may write its text in several lines.
    #[test]
    fn several_lines_of_data_are_one_document() {
        let body = "data: {\"usage\":\ndata: {\"total_tokens\":\nid: 7\ndata\ndata: 70}}\n\n";
        assert_eq!(of_events(&["/usage/total_tokens"], body), [Some(70)]);
    }

    /// higress-group/higress issue 2918: the answers of embeddings have megabytes before the usage.
    #[test]
    fn a_large_body_takes_no_memory() {
        let mut body =
            BodyNumbers::of("application/json", ["/usage/total_tokens"].into_iter()).unwrap();
        body.read(b"{\"data\": [");
        let (long, deep) = ([b'x'; 65_536], [b'['; 65_536]);
        for _ in 0..64 {
            body.read(b"\"");
            body.read(&long);
            body.read(b"\", 0.12345678901234567890123456789,");
            body.read(&deep);
            body.read(&[b']'; 65_536]);
        }
        body.read(b"], \"usage\": {\"total_tokens\": 70}}");
        let kept = body.numbers.text.capacity() + body.numbers.path.capacity();
        assert!(kept < 200, "{kept}");
        assert_eq!(body.numbers.found(), [Some(70)]);
    }
}

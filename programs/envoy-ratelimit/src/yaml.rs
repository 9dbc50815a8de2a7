//! YAML as the reader of envoyproxy/ratelimit takes it: version 1.1, the first document of a file.
//!
//! A file becomes a tree whose nodes know their lines. Scalars keep their text beside what they
//! mean, since `value: 010` is the text `010`, and `requests_per_unit: 010` is the number 8.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

/// The most nodes that a file may have, those of aliases included.
const MAX_NODES: usize = 4_000_000;
/// The most nodes that aliases may add: as many as the peer takes of a file that is aliases alone.
const MAX_ALIASED: usize = 400_000;
/// The deepest nesting, that of aliases included.
const MAX_DEPTH: usize = 200;

/// A value, and the line where it begins.
#[derive(Debug)]
pub(crate) struct YamlNode {
    pub(crate) line: usize,
    pub(crate) kind: NodeKind,
    /// The nodes in it, itself and those of aliases included.
    size: usize,
    /// The levels of them, its own included.
    height: usize,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Scalar {
        text: String,
        value: Scalar,
    },
    List(Vec<Rc<YamlNode>>),
    /// In order, with merge keys as they stand.
    Map(Vec<(Rc<YamlNode>, Rc<YamlNode>)>),
}

/// The meaning of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// A fraction, or a whole number that is too large.
    Float,
    Text,
    /// `<<`, which takes over the entries of other maps.
    Merge,
}

impl YamlNode {
    /// Reads the first document of a file.
    ///
    /// # Errors
    ///
    /// A text that begins with the line.
    pub(crate) fn read(text: &str) -> Result<Rc<Self>, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(place) = text.find(is_control) {
            let line = 1 + text[..place].matches('\n').count();
            return Err(at(line, "control characters are not allowed"));
        }
        let (parser, anchors) = (Parser::new_from_str(text), HashMap::new());
        let mut reader = Reader { parser, anchors, depth: 0, aliased: 0 };
        loop {
            match reader.next()? {
                (Event::StreamEnd, _) => {
                    let value = Scalar::Null;
                    let kind = NodeKind::Scalar { text: String::new(), value };
                    return Ok(Rc::new(Self { line: 1, kind, size: 1, height: 1 }));
                }
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
                event => return reader.node(event),
            }
        }
    }

    /// True for `~`, `null` and nothing.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Scalar { value: Scalar::Null, .. })
    }

    /// What an error calls it.
    pub(crate) fn noun(&self) -> String {
        match &self.kind {
            NodeKind::Scalar { value: Scalar::Null, .. } => "nothing".to_owned(),
            NodeKind::Scalar { text, .. } => format!("`{text}`"),
            NodeKind::List(_) => "a list".to_owned(),
            NodeKind::Map(_) => "a map".to_owned(),
        }
    }

    /// Calls `entry` with each entry of a map. Those that a merge key takes over come where the key
    /// stands; of several maps the first one comes last, so that it wins.
    pub(crate) fn entries(
        &self,
        entry: &mut impl FnMut(&YamlNode, &Rc<YamlNode>) -> Result<(), String>,
    ) -> Result<(), String> {
        let NodeKind::Map(entries) = &self.kind else {
            return Err(at(self.line, format_args!("a map is needed, not {}", self.noun())));
        };
        for (key, value) in entries {
            if !matches!(key.kind, NodeKind::Scalar { value: Scalar::Merge, .. }) {
                entry(key, value)?;
                continue;
            }
            let one = [Rc::clone(value)];
            let merged = match &value.kind {
                NodeKind::List(several) => several,
                _ => &one[..],
            };
            for map in merged.iter().rev() {
                if !matches!(map.kind, NodeKind::Map(_)) {
                    return Err(at(value.line, "`<<` needs a map, or a list of maps"));
                }
                map.entries(entry)?;
            }
        }
        Ok(())
    }
}

/// True for what the peer's reader refuses, wherever it stands.
fn is_control(letter: char) -> bool {
    !matches!(letter, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// An error about a line.
pub(crate) fn at(line: usize, what: impl std::fmt::Display) -> String {
    format!("line {line}: {what}")
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: HashMap<usize, Rc<YamlNode>>,
    depth: usize,
    /// The nodes that aliases have added.
    aliased: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(at(error.marker().line().max(1), error.info())),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The node that an event begins.
    fn node(&mut self, (event, span): (Event<'a>, Span)) -> Result<Rc<YamlNode>, String> {
        let line = span.start.line().max(1);
        let too_deep = || at(line, format_args!("it is nested deeper than {MAX_DEPTH} levels"));
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let (kind, anchor) = match event {
            Event::Alias(anchor) => {
                self.depth -= 1;
                let known = self.anchors.get(&anchor).cloned();
                let known = known.ok_or_else(|| at(line, "an anchor's value contains itself"))?;
                self.aliased += known.size;
                if self.depth + known.height > MAX_DEPTH {
                    return Err(too_deep());
                }
                if self.aliased > MAX_ALIASED {
                    return Err(at(line, "aliases make too much of it"));
                }
                return Ok(known);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain;
                let value = meaning(&text, is_plain, tag.as_deref())
                    .map_err(|why| at(line, format_args!("`{text}` {why}")))?;
                (NodeKind::Scalar { text: text.into_owned(), value }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        event => list.push(self.node(event)?),
                    }
                }
                (NodeKind::List(list), anchor)
            }
            Event::MappingStart(anchor, _) => {
                let mut map = Vec::new();
                loop {
                    match self.next()? {
                        (Event::MappingEnd, _) => break,
                        event => {
                            let key = self.node(event)?;
                            let value = self.next()?;
                            map.push((key, self.node(value)?));
                        }
                    }
                }
                (NodeKind::Map(map), anchor)
            }
            _ => return Err(at(line, "a value is missing")),
        };
        self.depth -= 1;
        let (mut size, mut height) = (1, 1);
        let mut add = |node: &YamlNode| {
            size += node.size;
            height = height.max(1 + node.height);
        };
        match &kind {
            NodeKind::Scalar { .. } => {}
            NodeKind::List(list) => list.iter().for_each(|node| add(node)),
            NodeKind::Map(map) => map.iter().for_each(|(key, value)| {
                add(key);
                add(value);
            }),
        }
        if size > MAX_NODES {
            return Err(at(line, "it has too many values"));
        }
        let node = Rc::new(YamlNode { line, kind, size, height });
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }
}

/// What a scalar means by its text, its quotes and its tag.
fn meaning(text: &str, is_plain: bool, tag: Option<&Tag>) -> Result<Scalar, String> {
    let tag = tag.map(|tag| format!("{}{}", tag.handle, tag.suffix));
    let tag = tag.as_deref().map(|tag| tag.trim_start_matches("tag:yaml.org,2002:"));
    let by_text = plain(text);
    let named = match tag {
        None if is_plain => return Ok(by_text),
        Some("bool") => matches!(by_text, Scalar::Bool(_)),
        Some("int") => matches!(by_text, Scalar::Int(_)),
        Some("float") => return Ok(Scalar::Float),
        Some("null") => by_text == Scalar::Null,
        Some("merge") => by_text == Scalar::Merge,
        // Text in quotes, text by its tag, and a type that nobody knows.
        _ => return Ok(Scalar::Text),
    };
    match named {
        true => Ok(by_text),
        false => Err(format!("is not a !!{}", tag.unwrap_or_default())),
    }
}

/// What a scalar without quotes means.
fn plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        "<<" => return Scalar::Merge,
        _ => {}
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    if [".nan", ".NaN", ".NAN"].contains(&text) || [".inf", ".Inf", ".INF"].contains(&unsigned) {
        return Scalar::Float;
    }
    match text.bytes().next() {
        Some(b'0'..=b'9' | b'+' | b'-' | b'.') => number(text),
        _ => Scalar::Text,
    }
}

/// A number in one of its spellings: `8`, `+8`, `010`, `0o10`, `0x8`, `0b1000`, `1_000`, `1.5`.
fn number(text: &str) -> Scalar {
    // A number that begins with a point has no underscores.
    let text = match text.starts_with('.') {
        true => text.to_owned(),
        false => text.replace('_', ""),
    };
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (if text.starts_with('-') { -1 } else { 1 }, rest),
        None => (1, &*text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &*lower),
    };
    let is_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    if is_digits {
        // One that is too large is no whole number that anything takes.
        let whole = i128::from_str_radix(digits, radix).map(|whole| whole * sign);
        let whole = whole.ok().and_then(|whole| i64::try_from(whole).ok());
        return whole.map_or(Scalar::Float, Scalar::Int);
    }
    match is_fraction(&lower) {
        true => Scalar::Float,
        false => Scalar::Text,
    }
}

/// True for digits with a point or an exponent, and for digits after a 0 that are not octal.
fn is_fraction(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    let is_exponent = exponent.is_none_or(|text| !text.is_empty() && are_digits(text));
    has_digits && are_digits(whole) && are_digits(fraction) && is_exponent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_yaml_1_1_says() {
        let table = [
            ("yes", Scalar::Bool(true)),
            ("On", Scalar::Bool(true)),
            ("n", Scalar::Bool(false)),
            ("yEs", Scalar::Text),
            ("~", Scalar::Null),
            ("010", Scalar::Int(8)),
            ("0o10", Scalar::Int(8)),
            ("0x10", Scalar::Int(16)),
            ("0b11", Scalar::Int(3)),
            ("-0b11", Scalar::Int(-3)),
            ("1_000", Scalar::Int(1_000)),
            ("+7", Scalar::Int(7)),
            ("0", Scalar::Int(0)),
            ("9223372036854775807", Scalar::Int(i64::MAX)),
            ("9223372036854775808", Scalar::Float),
            ("08", Scalar::Float),
            ("1.5", Scalar::Float),
            (".5", Scalar::Float),
            ("5.", Scalar::Float),
            ("1e3", Scalar::Float),
            ("-.inf", Scalar::Float),
            ("1.2.3.4", Scalar::Text),
            ("1:30", Scalar::Text),
            ("2024-01-01", Scalar::Text),
            ("-", Scalar::Text),
            ("0x", Scalar::Text),
            ("1e", Scalar::Text),
            (".", Scalar::Text),
            ("<<", Scalar::Merge),
        ];
        for (text, value) in table {
            assert_eq!(plain(text), value, "{text}");
        }
    }

    #[test]
    fn quotes_and_tags_decide_before_the_text() {
        let value = |yaml: &str| match &YamlNode::read(yaml).unwrap().kind {
            NodeKind::Scalar { value, .. } => *value,
            other => panic!("{other:?}"),
        };
        assert_eq!(value("'yes'"), Scalar::Text);
        assert_eq!(value("!!str 5"), Scalar::Text);
        assert_eq!(value("!!int '0x10'"), Scalar::Int(16));
        assert_eq!(value("!own 5"), Scalar::Text);
        assert_eq!(value(""), Scalar::Null);
        let error = YamlNode::read("a:\n  !!int x").unwrap_err();
        assert_eq!(error, "line 2: `x` is not a !!int");
    }

    /// The keys and values of a map, as text.
    fn flat(yaml: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let text = |node: &YamlNode| match &node.kind {
            NodeKind::Scalar { text, .. } => text.clone(),
            _ => "..".to_owned(),
        };
        let node = YamlNode::read(yaml).unwrap();
        let root = match &node.kind {
            NodeKind::List(list) => Rc::clone(list.last().unwrap()),
            _ => node,
        };
        root.entries(&mut |key, value| {
            found.push((text(key), text(value)));
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn merge_keys_take_over_maps_of_which_the_first_wins() {
        let yaml = "- &one {a: 1, b: 1}\n- &two {b: 2, c: 2}\n- {<<: [*one, *two], c: 3}\n";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let last = [pair("b", "2"), pair("c", "2"), pair("a", "1"), pair("b", "1"), pair("c", "3")];
        assert_eq!(flat(yaml), last);
        let map = YamlNode::read("{<<: 5}").unwrap();
        assert!(map.entries(&mut |_, _| Ok(())).unwrap_err().starts_with("line 1: `<<`"));
    }

    #[test]
    fn json_crlf_a_mark_of_bytes_and_a_second_document_are_taken() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(flat("{\"a\":\"b\",\"c\":1}"), [pair("a", "b"), pair("c", "1")]);
        assert_eq!(flat("\u{feff}a: b\r\nc: 1\r\n"), [pair("a", "b"), pair("c", "1")]);
        assert_eq!(flat("a: b\n---\na: [\n"), [pair("a", "b")]);
    }

    #[test]
    fn a_bomb_of_aliases_and_an_anchor_in_itself_are_refused() {
        let mut bomb = "- &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let aliases = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("- &a{level} [{aliases}]\n"));
        }
        assert!(YamlNode::read(&bomb).unwrap_err().contains("too much"));
        assert!(YamlNode::read("&a [*a]").unwrap_err().contains("contains itself"));
        assert!(YamlNode::read(&"[".repeat(5_000)).is_err());
    }

    #[test]
    fn levels_of_aliases_count_as_levels() {
        // Each line has one level, and the value that it names has one more than that before it.
        let chain = |levels: usize, link: fn(usize) -> String| {
            let links: String = (1..levels).map(link).collect();
            YamlNode::read(&format!("- &a0 {{x: y}}\n{links}"))
        };
        let lists = |level: usize| format!("- &a{level} [*a{}]\n", level - 1);
        let values = |level: usize| format!("- &a{level} {{x: *a{}}}\n", level - 1);
        let keys = |level: usize| format!("- &a{level} {{*a{} : y}}\n", level - 1);
        let merges = |level: usize| format!("- &a{level} {{<<: *a{}, x: y}}\n", level - 1);
        for link in [lists as fn(usize) -> String, values, keys, merges] {
            assert!(chain(100, link).is_ok());
            for levels in [250, 700, 5_000] {
                let error = chain(levels, link).unwrap_err();
                assert!(error.contains("nested deeper than 200 levels"), "{levels}: {error}");
            }
        }
    }

    #[test]
    fn control_characters_are_refused_as_the_peer_refuses_them() {
        for refused in ["\0", "\u{1}", "\u{b}", "\u{1b}", "\u{7f}", "\u{80}", "\u{9f}", "\u{fffe}"]
        {
            for yaml in [format!("a: b\n# {refused}\n"), format!("a:\n  'b{refused}'\n")] {
                let error = YamlNode::read(&yaml).unwrap_err();
                assert_eq!(error, "line 2: control characters are not allowed", "{yaml:?}");
            }
        }
        let taken = "a: \"b\\0\"\r\n# \t \u{85} \u{a0} \u{fffd} \u{1f980}\n";
        assert!(YamlNode::read(taken).is_ok());
    }
}

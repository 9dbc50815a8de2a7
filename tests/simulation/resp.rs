//! RESP: requests as they arrive, in pieces or many at once, and replies of both versions.

/// A part of a request: binary text.
pub type Word = Vec<u8>;

/// A reply to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Status(String),
    /// A code and a text, such as `NOAUTH Authentication required.`
    Error(String),
    Integer(i64),
    /// A score. RESP2 has no doubles, so it becomes text.
    Double(f64),
    Text(Word),
    Nil,
    /// No list. RESP2 distinguishes it from no text.
    NilList,
    List(Vec<Reply>),
    /// Scores and members of a sorted set: pairs, or all in one list in RESP2.
    Scored(Vec<(f64, Word)>),
    Map(Vec<(&'static str, Reply)>),
    /// A message that a subscriber gets without a question.
    Push(Vec<Reply>),
}

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    Two,
    Three,
}

impl Reply {
    pub fn ok() -> Self {
        Self::Status("OK".into())
    }

    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().to_vec())
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub fn count(count: usize) -> Self {
        Self::Integer(count as i64)
    }

    /// Appends the bytes of the reply.
    pub fn write(&self, version: Version, out: &mut Vec<u8>) {
        let is_new = version == Version::Three;
        match self {
            Self::Status(text) => line(out, '+', text),
            // A line break would end the reply.
            Self::Error(text) => line(out, '-', text.replace(['\r', '\n'], " ")),
            Self::Integer(number) => line(out, ':', number),
            Self::Double(number) if is_new => line(out, ',', seventeen_digits(*number)),
            Self::Double(number) => {
                Self::text(seventeen_digits(*number)).write(version, out);
            }
            Self::Text(text) => {
                line(out, '$', text.len());
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil | Self::NilList if is_new => line(out, '_', ""),
            Self::Nil => line(out, '$', -1),
            Self::NilList => line(out, '*', -1),
            Self::List(items) => list(out, '*', items, version),
            Self::Push(items) => list(out, if is_new { '>' } else { '*' }, items, version),
            Self::Scored(members) => {
                line(out, '*', if is_new { members.len() } else { 2 * members.len() });
                for (score, member) in members {
                    if is_new {
                        line(out, '*', 2);
                    }
                    Self::text(member).write(version, out);
                    Self::Double(*score).write(version, out);
                }
            }
            Self::Map(fields) => {
                match is_new {
                    true => line(out, '%', fields.len()),
                    false => line(out, '*', 2 * fields.len()),
                }
                for (name, value) in fields {
                    Self::text(name).write(version, out);
                    value.write(version, out);
                }
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: char, rest: impl std::fmt::Display) {
    out.extend_from_slice(format!("{kind}{rest}\r\n").as_bytes());
}

fn list(out: &mut Vec<u8>, kind: char, items: &[Reply], version: Version) {
    line(out, kind, items.len());
    for item in items {
        item.write(version, out);
    }
}

/// A double as C's `%.17g` writes it, which is how Redis 7.0 writes scores.
pub fn seventeen_digits(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if !(-4..17).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(16 - exponent).expect("at most 20");
    let fixed = format!("{number:.decimals$}");
    if decimals == 0 { fixed } else { trimmed(&fixed) }
}

/// Takes the next whole request from what has arrived. `None`: more bytes must come first.
pub fn take_request(input: &mut Vec<u8>) -> Result<Option<Vec<Word>>, String> {
    let mut at = 0;
    let words = match next_line(input, &mut at) {
        None => return Ok(None),
        Some([b'*', count @ ..]) => {
            let count = number(count).ok_or("ERR Protocol error: invalid multibulk length")?;
            let mut words = Vec::new();
            for _ in 0..count.max(0) {
                let length = match next_line(input, &mut at) {
                    None => return Ok(None),
                    Some([b'$', length @ ..]) => number(length),
                    Some(_) => return Err("ERR Protocol error: expected '$'".into()),
                };
                let length = length.and_then(|length| usize::try_from(length).ok());
                let length = length.ok_or("ERR Protocol error: invalid bulk length")?;
                if input.len() < at + length + 2 {
                    return Ok(None);
                }
                words.push(input[at..at + length].to_vec());
                at += length + 2;
            }
            words
        }
        // As a person types it.
        Some(typed) => typed
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .map(<[u8]>::to_vec)
            .collect(),
    };
    input.drain(..at);
    Ok(Some(words))
}

/// The line that begins at `at`, which then is behind it.
fn next_line<'a>(input: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &input[*at..];
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    *at += end + 1;
    Some(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]))
}

/// The integer that a text is.
pub fn number(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Neither `+1` nor `01` is one.
    (number.to_string().as_bytes() == text).then_some(number)
}

#[test]
fn requests_are_taken_whole_however_they_arrive() {
    let bytes = b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\nPING x\r\n";
    let (mut input, mut requests) = (Vec::new(), Vec::new());
    for byte in bytes {
        input.push(*byte);
        requests.extend(take_request(&mut input).expect("well formed"));
    }
    let words = |words: [&[u8]; 2]| words.map(<[u8]>::to_vec).to_vec();
    assert_eq!(requests, [words([b"ECHO", b"a\r\n"]), words([b"PING", b"x"])]);
    assert!(input.is_empty());
    assert!(take_request(&mut b"*1\r\n:1\r\n".to_vec()).is_err());
}

#[test]
fn doubles_are_written_as_c_writes_them() {
    let table = [
        (0.0, "0"),
        (-1.5, "-1.5"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (0.1, "0.10000000000000001"),
        (1e-5, "1.0000000000000001e-05"),
        (f64::NEG_INFINITY, "-inf"),
    ];
    for (number, text) in table {
        assert_eq!(seventeen_digits(number), text);
    }
}

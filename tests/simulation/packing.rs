//! The libraries `cmsgpack` and `struct` of Redis, byte for byte, as far as scripts use them.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

/// The deepest table that is packed; what lies deeper is nil.
const MAX_DEPTH: usize = 16;

/// `cmsgpack.pack`: MessagePack, each value in its shortest form.
pub fn pack_message(values: &Variadic<Value>) -> Result<Vec<u8>> {
    if values.is_empty() {
        return Err(Error::runtime("MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for value in values.iter() {
        pack_value(value, 0, &mut out)?;
    }
    Ok(out)
}

fn pack_value(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Value::Boolean(is_true) => out.push(if *is_true { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_integer(*number, out),
        Value::Number(number) => pack_number(*number, out),
        Value::String(text) => {
            let text = text.as_bytes();
            pack_length(text.len(), (0xa0, 32), Some(0xd9), 0xda, out);
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < MAX_DEPTH => pack_table(table, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn pack_number(number: f64, out: &mut Vec<u8>) {
    if number as i64 as f64 == number && number.abs() < 9.2e18 {
        return pack_integer(number as i64, out);
    }
    let short = number as f32;
    if f64::from(short) == number {
        out.push(0xca);
        out.extend_from_slice(&short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

fn pack_integer(number: i64, out: &mut Vec<u8>) {
    // The size in bytes and the code before it.
    let (code, size) = match number {
        -32..=127 => return out.push(number as u8),
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..-32 => (0xd0, 1),
        -0x8000..-0x80 => (0xd1, 2),
        -0x8000_0000..-0x8000 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(code);
    out.extend_from_slice(&number.to_be_bytes()[8 - size..]);
}

/// Writes the length of something: within the code itself if it is shorter than `within`. Else it
/// stands behind `byte`, if there is such a code and one byte suffices, or behind `wide` or the
/// next code.
fn pack_length(
    length: usize,
    (code, within): (u8, usize),
    byte: Option<u8>,
    wide: u8,
    out: &mut Vec<u8>,
) {
    if length < within {
        out.push(code | length as u8);
    } else if let Some(byte) = byte.filter(|_| length <= 0xff) {
        out.extend_from_slice(&[byte, length as u8]);
    } else if length <= 0xffff {
        out.push(wide);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    } else {
        out.push(wide + 1);
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

/// A table whose keys are 1 to n is a list; another is a map.
fn pack_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let (mut count, mut highest, mut is_list) = (0, 0, true);
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        match pair?.0 {
            Value::Integer(key) if key > 0 => highest = highest.max(key as usize),
            _ => is_list = false,
        }
    }
    if is_list && highest == count {
        pack_length(count, (0x90, 16), None, 0xdc, out);
        for place in 1..=count {
            pack_value(&table.raw_get(place)?, depth + 1, out)?;
        }
        return Ok(());
    }
    pack_length(count, (0x80, 16), None, 0xde, out);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack_value(&key, depth + 1, out)?;
        pack_value(&value, depth + 1, out)?;
    }
    Ok(())
}

/// One number of a layout of `struct`: `I` has four bytes unless digits say how many, `d` is a
/// double. `>` and `<` choose the order of bytes for what follows.
struct Field {
    is_double: bool,
    size: usize,
    is_big_endian: bool,
}

fn fields(layout: &str) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    let mut is_big_endian = cfg!(target_endian = "big");
    let mut rest = layout.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '>' => is_big_endian = true,
            '<' => is_big_endian = false,
            'I' => {
                let size = rest.next_if(char::is_ascii_digit).and_then(|digit| digit.to_digit(10));
                let size = size.unwrap_or(4) as usize;
                fields.push(Field { is_double: false, size: size.min(8), is_big_endian });
            }
            'd' => fields.push(Field { is_double: true, size: 8, is_big_endian }),
            other => return Err(Error::runtime(format!("invalid format option '{other}'"))),
        }
    }
    Ok(fields)
}

/// `struct.pack`.
pub fn pack_struct(layout: &LuaString, values: &[f64]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut values = values.iter();
    for field in fields(&layout.to_string_lossy())? {
        let number = *values.next().ok_or_else(|| Error::runtime("bad argument to 'pack'"))?;
        let bits = match field.is_double {
            true => number.to_bits(),
            false if number < 0.0 => (number as i64).cast_unsigned(),
            false => number as u64,
        };
        let mut bytes = bits.to_le_bytes()[..field.size].to_vec();
        if field.is_big_endian {
            bytes.reverse();
        }
        out.extend(bytes);
    }
    Ok(out)
}

/// `struct.unpack`: the values, and where the next one begins.
pub fn unpack_struct(
    _: &Lua,
    (layout, data, first): (LuaString, LuaString, Option<usize>),
) -> Result<MultiValue> {
    let data = data.as_bytes();
    let mut at = first.unwrap_or(1).saturating_sub(1);
    let mut values = MultiValue::new();
    for field in fields(&layout.to_string_lossy())? {
        let bytes = data.get(at..at + field.size);
        let mut bytes = bytes.ok_or_else(|| Error::runtime("data string too short"))?.to_vec();
        at += field.size;
        if field.is_big_endian {
            bytes.reverse();
        }
        bytes.resize(8, 0);
        let bits = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let number = if field.is_double { f64::from_bits(bits) } else { bits as f64 };
        values.push_back(Value::Number(number));
    }
    values.push_back(Value::Number((at + 1) as f64));
    Ok(values)
}

/// A value of a packed reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packed {
    Integer(i64),
    Text(String),
    False,
    Nothing,
}

/// The values of a list that `cmsgpack` packed.
pub fn unpack(bytes: &[u8]) -> Vec<Packed> {
    let mut rest = bytes;
    let mut take = |size: usize| {
        let (taken, after) = rest.split_at(size);
        rest = after;
        taken.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let length = match take(1) {
        code @ 0x90..=0x9f => code - 0x90,
        0xdc => take(2),
        0xdd => take(4),
        code => panic!("no list: {code:#x}"),
    };
    let mut values = Vec::new();
    for _ in 0..length {
        values.push(match take(1) {
            code @ 0..=0x7f => Packed::Integer(code.cast_signed()),
            code @ 0xe0..=0xff => Packed::Integer(code.cast_signed() - 256),
            0xc0 => Packed::Nothing,
            0xc2 => Packed::False,
            0xcc => Packed::Integer(take(1).cast_signed()),
            0xcd => Packed::Integer(take(2).cast_signed()),
            0xce => Packed::Integer(take(4).cast_signed()),
            0xcf => Packed::Integer(take(8).cast_signed()),
            0xd0 => Packed::Integer(i64::from(take(1) as i8)),
            0xd1 => Packed::Integer(i64::from(take(2) as i16)),
            0xd2 => Packed::Integer(i64::from(take(4) as i32)),
            0xd3 => Packed::Integer(take(8).cast_signed()),
            code => {
                let length = match code {
                    0xa0..=0xbf => code - 0xa0,
                    0xd9 => take(1),
                    0xda => take(2),
                    _ => panic!("an odd code: {code:#x}"),
                };
                let text = (0..length).map(|_| take(1) as u8 as char).collect();
                Packed::Text(text)
            }
        });
    }
    values
}
